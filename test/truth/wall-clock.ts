// Preloaded into a deployment's processes: shifts only the wall clock, by an offset received over IPC.

const machine = Date.now.bind(Date);
let offset = Number(process.env.WALL_CLOCK_OFFSET ?? 0);

Date.now = () => machine() + offset;
globalThis.Date = new Proxy(Date, {
  construct: (target, args: unknown[], newTarget) =>
    Reflect.construct(target, args.length === 0 ? [Date.now()] : args, newTarget) as object,
});
process.on('message', (message: { readonly clockOffset?: number }) => {
  offset = message.clockOffset ?? offset;
});
// Neither the channel nor the listener keeps the process alive.
process.channel?.unref();
