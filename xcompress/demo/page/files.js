// Fetch the folder's files and unpack them. Nothing is fetched after that.

/** Fetch a file of the folder; `advance` is told of every part that comes, in bytes. */
export async function fetchFile({ path }, advance = () => {}) {
  const reply = await fetch(new URL(path, import.meta.url));
  if (!reply.ok) throw new Error(`${path}: the server says ${reply.status}; copy the whole folder to it`);
  const parts = [];
  for (const reader = reply.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    advance(value.length);
  }
  return unpacked(new Blob(parts));
}

export async function fetchJson(file, advance) {
  return JSON.parse(new TextDecoder().decode(await fetchFile(file, advance)));
}

/** Unpack what is packed: some servers do it already, so the bytes are looked at, not the name. */
async function unpacked(blob) {
  const [first, second] = new Uint8Array(await blob.slice(0, 2).arrayBuffer());
  const packed = first === 0x1f && second === 0x8b;
  const stream = packed ? blob.stream().pipeThrough(new DecompressionStream("gzip")) : blob.stream();
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
