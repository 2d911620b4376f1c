import type { Completed, CompletedCommand, CompletedOption } from './completed-commands.js';
import { quoted } from './quoted.js';

/** The script by which zsh completes the program, with what each command and option does: to be sourced, or found in `fpath`. */
export function zshScript(commands: readonly CompletedCommand[]): string {
  return `#compdef merchant-gateway
# Completion of merchant-gateway for zsh, made by: merchant-gateway completion zsh

${commands.map(functionOf).join('\n')}
if [[ $funcstack[1] == _merchant-gateway ]]; then
  _merchant-gateway "$@"
else
  compdef _merchant-gateway merchant-gateway
fi
`;
}

function functionOf(command: CompletedCommand): string {
  const { path, commands, options, parameters } = command;
  const specs = options.flatMap(optionSpecs);
  if (commands.length === 0) {
    const places = parameters.map(({ name, value, isRepeated }, index) => {
      return quoted(`${isRepeated ? '*' : index + 1}:${escaped(name)}:${actionOf(value)}`);
    });
    return `${nameOf(path)}() {\n${argumentsOf('_arguments', [...specs, ...places])}\n}\n`;
  }
  const described = commands.map(({ name, description }) => quoted(`${escaped(name)}:${description}`));
  const cases = commands.map(({ name }) => `    ${name}) ${nameOf([...path, name])} ;;`);
  return `${nameOf(path)}() {
  local curcontext=$curcontext state line
  typeset -A opt_args
  local -a commands=(
    ${described.join('\n    ')}
  )
${argumentsOf('_arguments -C', [...specs, "'1: :->command'", "'*:: :->rest'"])}
  case $state in
  command) _describe -t commands command commands ;;
  rest)
    case $line[1] in
${cases.join('\n')}
    esac
    ;;
  esac
}
`;
}

function nameOf(path: readonly string[]): string {
  return ['_merchant-gateway', ...path].join('-');
}

function argumentsOf(call: string, specs: readonly string[]): string {
  return `  ${[call, ...specs].join(' \\\n    ')}`;
}

/** Each flag may be given again: some options gather their values. */
function optionSpecs({ flags, description, value }: CompletedOption): string[] {
  return flags.map((flag) => {
    const text = `[${escaped(description)}]`;
    if (value === null) return quoted(`*${flag}${text}`);
    return quoted(`*${flag}${flag.startsWith('--') ? '=' : '+'}${text}:value:${actionOf(value)}`);
  });
}

function actionOf(value: Completed): string {
  if (value === 'file') return '_files';
  if (value === 'directory') return '_files -/';
  return value === 'nothing' ? ' ' : `(${value.join(' ')})`;
}

function escaped(text: string): string {
  return text.replaceAll(/[[\]:\\]/g, '\\$&');
}
