// Loaded before a process of a deployment: its wall clock differs from the machine's by what it is sent. Its monotonic clock does not.

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
// Neither the channel nor the listener keeps the process.
process.channel?.unref();
