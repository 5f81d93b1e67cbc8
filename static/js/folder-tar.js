// @ts-check
// Writes a tar archive as one Blob: nothing is read before it is sent. Long and foreign names go into pax headers.
(() => {
  const block = 512;
  const encoder = new TextEncoder();

  const put = (bytes, text, at) => bytes.set(encoder.encode(text), at);
  const octal = (number, length) => number.toString(8).padStart(length - 1, "0");
  const header = (name, size, mtime, kind) => {
    const bytes = new Uint8Array(block);
    bytes.set(encoder.encode(name).subarray(0, 100), 0);
    put(bytes, octal(kind === "5" ? 0o755 : 0o644, 8), 100);
    put(bytes, octal(0, 8), 108);
    put(bytes, octal(0, 8), 116);
    put(bytes, octal(size, 12), 124);
    put(bytes, octal(mtime, 12), 136);
    put(bytes, "        ", 148);
    put(bytes, kind, 156);
    put(bytes, "ustar\u000000", 257);
    put(bytes, `${octal(bytes.reduce((sum, byte) => sum + byte, 0), 7)}\0 `, 148);
    return bytes;
  };
  const padding = (size) => new Uint8Array((block - (size % block)) % block);
  // A record begins with its own length, the digits of which count.
  const record = (text) => {
    const rest = encoder.encode(` ${text}\n`).length;
    let size = rest + 1;
    while (size !== rest + String(size).length) size = rest + String(size).length;
    return encoder.encode(`${size} ${text}\n`);
  };

  // Entries are {path, file} for files and {path} for directories.
  window.tarOf = (entries) => {
    const parts = [];
    for (const { path, file } of entries) {
      const mtime = Math.floor((file?.lastModified ?? Date.now()) / 1000);
      const isPlain = /^[\x20-\x7e]*$/.test(path) && path.length < 100;
      if (!isPlain) {
        const long = record(`path=${path}`);
        parts.push(header("pax", long.length, mtime, "x"), long, padding(long.length));
      }
      parts.push(header(isPlain ? path : "long", file?.size ?? 0, mtime, file ? "0" : "5"));
      if (file) parts.push(file, padding(file.size));
    }
    parts.push(new Uint8Array(2 * block));
    return new Blob(parts, { type: "application/x-tar" });
  };
})();
