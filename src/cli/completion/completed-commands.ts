import type { Argument, Command, Option } from 'commander';

/** What completes a word: file names, directory names, nothing, or the words of a list. */
export type CompletionKind = 'file' | 'directory' | 'nothing' | readonly string[];

/** An option, as shell completion needs it. */
export interface CompletedOption {
  /** The short form, the long form, or both, such as `-h` and `--help`. */
  readonly flags: readonly string[];
  readonly description: string;
  /** What completes the option's value; null if the option takes no value. */
  readonly value: CompletionKind | null;
}

/** A command or the program itself, as shell completion needs it. */
export interface CompletedCommand {
  /** The words after the program name, such as `keys create`; empty for the program itself. */
  readonly path: readonly string[];
  readonly commands: readonly { readonly name: string; readonly description: string }[];
  readonly options: readonly CompletedOption[];
  readonly parameters: readonly {
    readonly name: string;
    readonly value: CompletionKind;
    readonly isRepeated: boolean;
  }[];
}

/** Completions of option and argument values, by placeholder name. For example, `<file>` has the name `file`. */
const placeholderCompletions: Readonly<Record<string, CompletionKind>> = { file: 'file', dir: 'directory' };

/** Returns the program and all commands below it, each before its subcommands. Omits hidden commands and options. */
export function completedCommands(program: Command, path: readonly string[] = []): CompletedCommand[] {
  const help = program.createHelp();
  const commands = help.visibleCommands(program).filter((command) => command.name() !== 'help');
  const completed: CompletedCommand = {
    path,
    commands: commands.map((command) => ({ name: command.name(), description: command.description() })),
    options: help.visibleOptions(program).map(completedOption),
    parameters: program.registeredArguments.map((argument) => ({
      name: argument.name(),
      value: valueOf(argument, argument.name()),
      isRepeated: argument.variadic,
    })),
  };
  return [completed, ...commands.flatMap((command) => completedCommands(command, [...path, command.name()]))];
}

function completedOption(option: Option): CompletedOption {
  const place = /[<[]([a-z-]+)/.exec(option.flags)?.[1];
  return {
    flags: [option.short, option.long].filter((flag) => flag !== undefined),
    description: option.description,
    value: place === undefined ? null : valueOf(option, place),
  };
}

function valueOf({ argChoices }: Option | Argument, place: string): CompletionKind {
  return argChoices ?? placeholderCompletions[place] ?? 'nothing';
}
