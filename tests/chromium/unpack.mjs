// Unpack Chromium and the libraries that it needs into TMPDIR.
import { join } from "node:path";
import chromium, { inflate } from "@sparticuz/chromium";

await chromium.executablePath();
await inflate(join("node_modules", "@sparticuz", "chromium", "bin", "al2023.tar.br"));
