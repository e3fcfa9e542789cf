// A real browser on a real console: pages that log an error, break the content security policy, load from elsewhere or have a serious
// finding of axe are wrong, and so is a story that is not told.
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const args = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-dev-shm-usage",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Every page of the console. */
export const places = [
  "/",
  "/demand",
  "/fleet",
  "/fleet/machines",
  "/fleet/clusters",
  "/fleet/capacity",
  "/fleet/drains",
  "/money",
  "/money/waste",
  "/money/whatif",
  "/history",
  "/history/compare",
  "/system",
  "/system/sources",
  "/system/coordinator",
  "/system/ownership",
  "/system/moves",
  "/system/settings",
];

/** The longest that anything is waited for. It only ends a run that fails. */
export const patience = Number(process.env.PATIENCE ?? 60_000);

export async function start(base, pictures = process.env.PICTURES) {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args });
  const wrong = new Set();
  if (pictures) mkdirSync(pictures, { recursive: true });
  const self = {
    wrong,
    /** A fresh page. `foreign` stands for another site's: it has no policy of ours and asks elsewhere. `lost` says that the console or a source goes away on purpose, so that failed requests are no defect. */
    async open({ theme = "light", lost = false, foreign = false, width = 1280, height = 800 } = {}) {
      const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, bypassCSP: foreign });
      const page = await context.newPage();
      page.setDefaultTimeout(patience);
      page.on("console", (m) => {
        if (m.type() === "error" && !foreign && !(lost && /Failed to load resource|ERR_/.test(m.text())))
          wrong.add(`${page.url()}: ${m.text()}`);
      });
      page.on("pageerror", (e) => wrong.add(`${page.url()}: ${e.message}`));
      page.on("dialog", (d) => {
        wrong.add(`${page.url()} opens a dialog: ${d.message()}`);
        d.dismiss();
      });
      page.on("request", (r) => {
        if (!foreign && !r.url().startsWith(base) && !r.url().startsWith("data:")) wrong.add(`${page.url()} asks ${r.url()}`);
      });
      await page.addInitScript(() =>
        document.addEventListener("securitypolicyviolation", (e) =>
          console.error(`the policy refused ${e.violatedDirective} ${e.blockedURI}`),
        ),
      );
      return page;
    },
    /** Loads a place and waits until it shows what it has. */
    async visit(page, path) {
      await page.goto(base + path);
      await self.settled(page, path);
    },
    async settled(page, what) {
      await page
        .waitForFunction(() => document.querySelector(".page h1") && !document.querySelector("[aria-busy=true]"))
        .catch(() => wrong.add(`${what}: still reading`));
    },
    /** axe, through the debugger: the page's policy lets no foreign script in. */
    async judge(page, what, only = "") {
      // While a drawer fades in, its texts have less contrast.
      await page.evaluate(() =>
        Promise.allSettled(
          document
            .getAnimations()
            .filter((a) => a.effect?.getComputedTiming().endTime !== Number.POSITIVE_INFINITY)
            .map((a) => a.finished),
        ),
      );
      const options = JSON.stringify({ resultTypes: ["violations"], ...(only ? { runOnly: [only] } : {}) });
      const found = await page.evaluate(
        `${axe}; axe.run(${options}).then((r) => r.violations.filter((v) => v.impact === "serious" || v.impact === "critical").map((v) => v.id + ": " + v.nodes.map((n) => n.html.slice(0, 160)).slice(0, 2).join(" | ")))`,
      );
      for (const f of found) wrong.add(`${what}: ${f}`);
    },
    async picture(page, name) {
      if (pictures) await page.screenshot({ path: `${pictures}/${name}.png` });
    },
    /** Judges a page in both themes; only its colours differ in the second. */
    async both(page, what, name) {
      for (const theme of ["light", "dark"]) {
        await page.evaluate((t) => {
          if (document.documentElement.dataset.theme !== t) document.querySelector("header.top button[data-theme-switch]").click();
        }, theme);
        await self.judge(page, `${theme} ${what}`, theme === "dark" ? "color-contrast" : "");
        await self.picture(page, `${name}-${theme}`);
      }
    },
    /** Tells a story on a page of its own; what it throws is wrong. */
    async story(title, tell, options = {}) {
      const began = Date.now();
      const page = await self.open(options);
      try {
        await tell(page);
        await self.judge(page, title);
      } catch (e) {
        wrong.add(`${title}: ${e.message.split("\n")[0]} at ${page.url()}`);
      }
      for (const c of browser.contexts()) await c.close();
      console.log(`${title}: ${Date.now() - began} ms`);
    },
    close: () => browser.close(),
    async end() {
      await browser.close();
      for (const w of wrong) console.log(`WRONG ${w}`);
      process.exit(wrong.size ? 1 : 0);
    },
  };
  return self;
}

export function must(is, what) {
  if (!is) throw new Error(what);
}

/** Waits until a page hears the keys of what it has just drawn: it listens once the picture is on the screen. */
export const heard = (page) =>
  page.evaluate(async () => {
    for (let n = 0; n < 2; n++) await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  });

/** Presses g and the letter of a place. The letter counts for a moment after g only; keys that came too far apart are pressed again. */
export async function go(page, letter) {
  for (let slow = true; slow; ) {
    const began = Date.now();
    await page.keyboard.press("g");
    await page.keyboard.press(letter);
    slow = Date.now() - began > 1000;
  }
}
