/**
 * The part of MessagePack that streams use: null, booleans, numbers, texts, bytes, arrays, objects.
 *
 * Integers beyond 53 bits are bigints both ways: the number of a task has 63 bits.
 */

export type Packed =
  | null
  | undefined
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | readonly Packed[]
  | { readonly [name: string]: Packed };

/** Levels of nesting; the payloads of tasks are bytes here, whatever is nested in them. */
const MAX_DEPTH = 64;

/** Bytes that are not MessagePack, or use a part of it that streams do not have. */
export class MsgpackError extends Error {
  override name = "MsgpackError";
}

export function encode(value: Packed): Buffer {
  const pieces: Buffer[] = [];
  write(value, pieces, 0);
  return Buffer.concat(pieces);
}

function write(value: Packed, pieces: Buffer[], depth: number): void {
  if (depth > MAX_DEPTH) {
    throw new MsgpackError("nested too deep");
  }
  if (value === null || value === undefined) {
    pieces.push(Buffer.of(0xc0));
  } else if (typeof value === "boolean") {
    pieces.push(Buffer.of(value ? 0xc3 : 0xc2));
  } else if (typeof value === "number") {
    pieces.push(Number.isSafeInteger(value) ? integer(BigInt(value)) : float(value));
  } else if (typeof value === "bigint") {
    pieces.push(integer(value));
  } else if (typeof value === "string") {
    const bytes = Buffer.from(value, "utf8");
    pieces.push(textHead(bytes.length), bytes);
  } else if (value instanceof Uint8Array) {
    pieces.push(head(value.length, 0xc4, 0xc5, 0xc6), Buffer.from(value));
  } else if (Array.isArray(value)) {
    pieces.push(value.length < 16 ? Buffer.of(0x90 | value.length) : head(value.length, 0, 0xdc, 0xdd));
    for (const one of value as readonly Packed[]) {
      write(one, pieces, depth + 1);
    }
  } else {
    const entries = Object.entries(value).filter(([, one]) => one !== undefined);
    pieces.push(
      entries.length < 16 ? Buffer.of(0x80 | entries.length) : head(entries.length, 0, 0xde, 0xdf),
    );
    for (const [name, one] of entries) {
      write(name, pieces, depth + 1);
      write(one, pieces, depth + 1);
    }
  }
}

function integer(value: bigint): Buffer {
  if (value >= 0n && value < 128n) {
    return Buffer.of(Number(value));
  }
  if (value < 0n && value >= -32n) {
    return Buffer.of(0x100 + Number(value));
  }
  const bytes = Buffer.alloc(9);
  if (value >= 0n && value < 1n << 64n) {
    bytes[0] = 0xcf;
    bytes.writeBigUInt64BE(value, 1);
  } else if (value < 0n && value >= -(1n << 63n)) {
    bytes[0] = 0xd3;
    bytes.writeBigInt64BE(value, 1);
  } else {
    throw new MsgpackError(`an integer beyond 64 bits: ${value}`);
  }
  return bytes;
}

function float(value: number): Buffer {
  const bytes = Buffer.alloc(9);
  bytes[0] = 0xcb;
  bytes.writeDoubleBE(value, 1);
  return bytes;
}

function textHead(size: number): Buffer {
  return size < 32 ? Buffer.of(0xa0 | size) : head(size, 0xd9, 0xda, 0xdb);
}

/** The head of something with a size, in one, two or four bytes; `short` is 0 where there is none. */
function head(size: number, short: number, medium: number, long: number): Buffer {
  if (size < 0x100 && short !== 0) {
    return Buffer.of(short, size);
  }
  if (size < 0x10000) {
    return Buffer.of(medium, size >> 8, size & 0xff);
  }
  const bytes = Buffer.alloc(5);
  bytes[0] = long;
  bytes.writeUInt32BE(size, 1);
  return bytes;
}

/** Read one value; anything after it is an error. */
export function decode(data: Uint8Array): Packed {
  const reader = new Reader(Buffer.from(data.buffer, data.byteOffset, data.byteLength));
  const value = reader.read(0);
  if (!reader.isAtEnd) {
    throw new MsgpackError("more than one value");
  }
  return value;
}

class Reader {
  private position = 0;

  constructor(private readonly data: Buffer) {}

  get isAtEnd(): boolean {
    return this.position === this.data.length;
  }

  read(depth: number): Packed {
    if (depth > MAX_DEPTH) {
      throw new MsgpackError("nested too deep");
    }
    const kind = this.data.readUInt8(this.take(1));
    if (kind < 0x80) return kind;
    if (kind >= 0xe0) return kind - 0x100;
    if (kind < 0x90) return this.object(kind & 0x0f, depth);
    if (kind < 0xa0) return this.array(kind & 0x0f, depth);
    if (kind < 0xc0) return this.text(kind & 0x1f);
    const data = this.data;
    switch (kind) {
      case 0xc0: return null;
      case 0xc2: return false;
      case 0xc3: return true;
      case 0xc4: return this.bytes(this.size(1));
      case 0xc5: return this.bytes(this.size(2));
      case 0xc6: return this.bytes(this.size(4));
      case 0xca: return data.readFloatBE(this.take(4));
      case 0xcb: return data.readDoubleBE(this.take(8));
      case 0xcc: return data.readUInt8(this.take(1));
      case 0xcd: return data.readUInt16BE(this.take(2));
      case 0xce: return data.readUInt32BE(this.take(4));
      case 0xcf: return shortened(data.readBigUInt64BE(this.take(8)));
      case 0xd0: return data.readInt8(this.take(1));
      case 0xd1: return data.readInt16BE(this.take(2));
      case 0xd2: return data.readInt32BE(this.take(4));
      case 0xd3: return shortened(data.readBigInt64BE(this.take(8)));
      case 0xd9: return this.text(this.size(1));
      case 0xda: return this.text(this.size(2));
      case 0xdb: return this.text(this.size(4));
      case 0xdc: return this.array(this.size(2), depth);
      case 0xdd: return this.array(this.size(4), depth);
      case 0xde: return this.object(this.size(2), depth);
      case 0xdf: return this.object(this.size(4), depth);
      default: throw new MsgpackError(`a value of the kind 0x${kind.toString(16)}`);
    }
  }

  /** Move on by so many bytes; returns where they begin. */
  private take(count: number): number {
    const start = this.position;
    if (start + count > this.data.length) {
      throw new MsgpackError("cut off");
    }
    this.position = start + count;
    return start;
  }

  private size(count: 1 | 2 | 4): number {
    return this.data.readUIntBE(this.take(count), count);
  }

  private bytes(size: number): Buffer {
    const start = this.take(size);
    return this.data.subarray(start, start + size);
  }

  private text(size: number): string {
    return this.bytes(size).toString("utf8");
  }

  private array(size: number, depth: number): Packed[] {
    const items: Packed[] = []; // grows as it is read: a size alone reserves nothing
    for (let index = 0; index < size; index += 1) {
      items.push(this.read(depth + 1));
    }
    return items;
  }

  private object(size: number, depth: number): Record<string, Packed> {
    const fields: Record<string, Packed> = Object.create(null) as Record<string, Packed>;
    for (let index = 0; index < size; index += 1) {
      const name = this.read(depth + 1);
      if (typeof name !== "string") {
        throw new MsgpackError("a field whose name is no text");
      }
      fields[name] = this.read(depth + 1);
    }
    return fields;
  }
}

function shortened(value: bigint): number | bigint {
  return value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER ? Number(value) : value;
}
