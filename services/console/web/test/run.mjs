// Drives the console at an address in a real browser: node run.mjs http://127.0.0.1:7700 [directory for screenshots].
// It fails when a page logs an error, breaks the content security policy, has a serious finding of axe, or does not answer a story by keyboard.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const [base, out] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args });
const wrong = [];
const pages = ["/", "/demand", "/fleet", "/fleet/machines", "/fleet/clusters", "/fleet/capacity", "/fleet/drains", "/money", "/money/waste", "/money/whatif", "/history", "/history/compare",
  "/system", "/system/sources", "/system/coordinator", "/system/ownership", "/system/moves", "/system/settings"];
const name = (path) => path.replace(/\W+/g, "-").replace(/^-|-$/g, "") || "now";

async function open(theme) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: theme });
  const page = await context.newPage();
  page.on("console", (m) => { if (m.type() === "error") wrong.push(`${theme} ${page.url()}: ${m.text()}`); });
  page.on("pageerror", (e) => wrong.push(`${theme} ${page.url()}: ${e.message}`));
  page.on("request", (r) => { if (!r.url().startsWith(base) && !r.url().startsWith("data:")) wrong.push(`${page.url()} asks ${r.url()}`); });
  return page;
}
async function judge(page, what) {
  // through the debugger: the page's policy lets no foreign script in
  const found = await page.evaluate(`${axe}; axe.run({ resultTypes: ["violations"] }).then((r) => r.violations.filter((v) => v.impact === "serious" || v.impact === "critical").map((v) => v.id + ": " + v.nodes.map((n) => n.html.slice(0, 160)).slice(0, 2).join(" | ")))`);
  for (const f of found) wrong.push(`${what}: ${f}`);
}
for (const theme of ["light", "dark"]) {
  const page = await open(theme);
  for (const path of pages) {
    await page.goto(base + path);
    await page.waitForFunction(() => document.querySelector(".page h1") && !document.querySelector("[aria-busy=true]"), undefined, { timeout: 15000 }).catch(() => wrong.push(`${theme} ${path}: still reading after 15 s`));
    await page.waitForTimeout(300);
    await judge(page, `${theme} ${path}`);
    if (out) await page.screenshot({ path: `${out}/${theme}-${name(path)}.png` });
  }
  await page.context().close();
}

/** A story is told by keyboard alone. */
async function story(title, tell) {
  const page = await open("light");
  try {
    await page.goto(base);
    await page.waitForSelector(".figures");
    await tell(page);
    await judge(page, title);
    if (out) await page.screenshot({ path: `${out}/light-story-${name(title)}.png` });
  } catch (e) {
    wrong.push(`${title}: ${e.message.split("\n")[0]}`);
  }
  await page.context().close();
}
await story("why is my Pod waiting", async (page) => {
  await page.waitForSelector(".list.wait li");
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".drawer .funnel");
  const shown = page.url();
  await page.keyboard.press("Escape");
  await page.waitForSelector(".drawer", { state: "detached" });
  await page.goto(shown); // who opens the link sees what the sender saw
  await page.waitForSelector(".drawer .funnel");
});
await story("why was this machine taken away", async (page) => {
  await page.keyboard.press("/");
  await page.keyboard.type("demo-ondemand-a0-0");
  await page.waitForSelector(".hits li[aria-selected=true] .name");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".drawer .timeline li .sentence");
});
await story("where does the money go", async (page) => {
  await page.keyboard.press("g");
  await page.keyboard.press("m");
  await page.waitForSelector("table[aria-label=Cost], .scroll[aria-label=Cost] tbody tr");
});
await browser.close();
for (const w of new Set(wrong)) console.log(w);
process.exit(wrong.length ? 1 : 0);
