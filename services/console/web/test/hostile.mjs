// Names that attack whoever shows them are text everywhere: node hostile.mjs ADDRESS. EVIL is the name.
import { places, start } from "./browser.mjs";

const base = process.argv[2];
const evil = process.env.EVIL;
const b = await start(base);
const enc = encodeURIComponent;
const thing = (...parts) => `/?open=${enc(parts.map(enc).join("/"))}`;
const page = await b.open({ lost: true }); // without a coordinator, and a filter of 4 KB is refused
const paths = [
  ...places,
  thing("machine", "s0", "m-1"),
  thing("need", "s0", evil.slice(0, 200), "row", "", ""),
  thing("cluster", "s0", evil.slice(0, 600)),
  thing("shard", "s0"),
  `/demand?cluster=${enc(evil)}`,
  `/?at=${enc(evil)}`,
  `/?open=${enc(evil)}`,
];
let shown = 0;
for (const path of paths) {
  const what = path.slice(0, 60);
  await b.visit(page, path);
  const found = await page.evaluate(() => ({
    hacked: window.hacked,
    made: document.querySelectorAll("img,script:not([src]),body style,iframe,[onerror]").length,
    scripts: [...document.querySelectorAll("a")].filter((a) => /^javascript:/i.test(a.getAttribute("href") ?? "")).length,
    text: document.body.textContent.includes("<img src=x"),
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  }));
  if (found.hacked) b.wrong.add(`${what}: a name ran`);
  if (found.made || found.scripts) b.wrong.add(`${what}: a name made ${found.made} elements and ${found.scripts} links`);
  if (found.wide > 0) b.wrong.add(`${what}: the page is ${found.wide} px wider than its window`);
  if (found.text) shown++;
  await b.picture(page, `hostile-${paths.indexOf(path)}`);
}
if (shown < paths.length / 2) b.wrong.add(`only ${shown} of ${paths.length} pages show the name at all`);
await b.story("search", async (page) => {
  await b.visit(page, "/");
  await page.keyboard.press("/");
  await page.keyboard.type("IMG SRC");
  await page.waitForSelector(".hits li[aria-selected=true] .name");
  if (!(await page.locator(".hits").textContent()).includes("<img src=x")) b.wrong.add("search does not show the name as text");
  if (await page.evaluate(() => window.hacked || document.querySelectorAll("img").length)) b.wrong.add("search: a name ran");
});
await b.end();
