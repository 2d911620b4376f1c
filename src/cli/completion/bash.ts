import type { Completed, CompletedCommand } from './completed-commands.js';
import { quoted } from './quoted.js';

/** The script by which bash completes the program; it needs no other package. */
export function bashScript(commands: readonly CompletedCommand[]): string {
  return `# Completion of merchant-gateway for bash, made by: merchant-gateway completion bash

# Sets what a command has: its commands, its options, and those of them that take a value.
_merchant_gateway_command() {
  case $1 in
${commands.map(commandCase).join('\n')}
  esac
}

# Sets what completes the value of an option, or the argument with that number: words, or the kind of files.
_merchant_gateway_value() {
  case $1 in
${commands.flatMap(valueCases).join('\n')}
  esac
}

_merchant_gateway() {
  local current=\${COMP_WORDS[COMP_CWORD]} path= option= word= commands= options= valued= words= files= i
  local -i argument=1
  COMPREPLY=()
  _merchant_gateway_command ''
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=\${COMP_WORDS[i]}
    if [[ -n $option ]]; then
      # bash takes --option=value apart at the sign.
      [[ $word == = ]] || option=
    elif [[ $word == -?* ]]; then
      [[ " $valued " == *" $word "* ]] && option=$word
    elif [[ " $commands " == *" $word "* ]]; then
      path=\${path:+$path }$word
      _merchant_gateway_command "$path"
    else
      argument+=1
      commands=
    fi
  done
  [[ $current == = ]] && current=
  if [[ -n $option ]]; then
    _merchant_gateway_value "$path $option"
  elif [[ $current == -* ]]; then
    words=$options
  elif [[ -n $commands ]]; then
    words=$commands
  else
    _merchant_gateway_value "$path $argument"
  fi
  if [[ -n $files ]]; then
    compopt -o filenames 2>/dev/null
    while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -A "$files" -- "$current")
  else
    while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -W "$words" -- "$current")
  fi
}

complete -F _merchant_gateway merchant-gateway
`;
}

function commandCase({ path, commands, options }: CompletedCommand): string {
  const flagsOf = (chosen: typeof options): string => quoted(chosen.flatMap(({ flags }) => flags).join(' '));
  const names = quoted(commands.map(({ name }) => name).join(' '));
  const valued = options.filter(({ value }) => value !== null);
  return `  ${quoted(path.join(' '))}) commands=${names} options=${flagsOf(options)} valued=${flagsOf(valued)} ;;`;
}

function valueCases({ path, options, parameters }: CompletedCommand): string[] {
  const command = path.join(' ');
  const ofOptions = options.flatMap(({ flags, value }) =>
    value === null ? [] : valueCase(flags.map((flag) => quoted(`${command} ${flag}`)).join(' | '), value),
  );
  const ofParameters = parameters.flatMap(({ value, isRepeated }, index) => {
    return valueCase(isRepeated ? `${quoted(`${command} `)}[0-9]*` : quoted(`${command} ${index + 1}`), value);
  });
  return [...ofOptions, ...ofParameters];
}

function valueCase(pattern: string, value: Completed): string[] {
  if (value === 'nothing') return [];
  return [`  ${pattern}) ${typeof value === 'string' ? `files=${value}` : `words=${quoted(value.join(' '))}`} ;;`];
}
