// The one global of Node that client.mjs uses; @types/node would be a dependency for a single name.
declare const process: { argv: string[] };
