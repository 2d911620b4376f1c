import type { Argument, Command, Option } from 'commander';

/** What completes a word: names of files or directories, one of some words, or nothing that could be known. */
export type Completed = 'file' | 'directory' | 'nothing' | readonly string[];

/** An option as a shell completes it. */
export interface CompletedOption {
  /** One or both of `-h` and `--help`. */
  readonly flags: readonly string[];
  readonly description: string;
  /** What completes its value; null: it takes none. */
  readonly value: Completed | null;
}

/** A command, the program itself included, as a shell completes it. */
export interface CompletedCommand {
  /** The words that lead to it behind the program's name, such as `keys create`; none for the program. */
  readonly path: readonly string[];
  readonly commands: readonly { readonly name: string; readonly description: string }[];
  readonly options: readonly CompletedOption[];
  readonly parameters: readonly { readonly name: string; readonly value: Completed; readonly isRepeated: boolean }[];
}

/** Placeholders such as `<file>`, by which options and arguments say what they take. */
const places: Readonly<Record<string, Completed>> = { file: 'file', dir: 'directory' };

/** The program and all that is below it, each before its own commands; what its help does not show is left out. */
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

function valueOf({ argChoices }: Option | Argument, place: string): Completed {
  return argChoices ?? places[place] ?? 'nothing';
}
