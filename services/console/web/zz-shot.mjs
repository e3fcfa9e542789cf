import { chromium } from "playwright-core";
const base = process.argv[2];
const b = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
const p = await b.newPage({ viewport: { width: 1280, height: 900 } });
for (const [name, path] of Object.entries(JSON.parse(process.argv[3]))) {
  await p.goto(base + path); await p.waitForTimeout(1800);
  await p.screenshot({ path: `/tmp/w/st/${name}.png` });
}
await b.close();
