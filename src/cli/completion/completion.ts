import { Argument, Command } from 'commander';
import type { CommandIo } from '../command-io.js';
import { bashScript } from './bash.js';
import { completedCommands } from './completed-commands.js';
import { zshScript } from './zsh.js';

const scripts = { bash: bashScript, zsh: zshScript } as const;

const installText = `
bash, in ~/.bashrc:   source <(merchant-gateway completion bash)
zsh, in ~/.zshrc:     autoload -U compinit && compinit && source <(merchant-gateway completion zsh)
If you store the script in a file, generate it again after each upgrade of merchant-gateway, because options can change.
`;

/**
 * Creates the command `completion`, which prints the completion script of a shell.
 * @param wholeProgram loads the program with all commands
 */
export function completionCommand({ out }: Pick<CommandIo, 'out'>, wholeProgram: () => Promise<Command>): Command {
  return new Command('completion')
    .description('print a shell script that completes commands, options and files')
    .addArgument(new Argument('<shell>', 'the shell').choices(Object.keys(scripts)))
    .addHelpText('after', installText)
    .action(async (shell: keyof typeof scripts) => {
      out(scripts[shell](completedCommands(await wholeProgram())));
    });
}
