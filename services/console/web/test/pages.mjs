// Every page in both themes, and the three questions by keyboard alone, on a running fleet: node pages.mjs ADDRESS.
// MACHINE is one that was taken back by its cloud, VICTIM one that a more urgent need took, POD namespace/name of one that waits.
import { must, start } from "./browser.mjs";

const base = process.argv[2];
const { MACHINE, VICTIM, POD } = process.env;
const b = await start(base);

const pages = ["/", "/demand", "/fleet", "/fleet/machines", "/fleet/clusters", "/fleet/capacity", "/fleet/drains", "/money", "/money/waste", "/money/whatif", "/history", "/history/compare",
  "/system", "/system/sources", "/system/coordinator", "/system/ownership", "/system/moves", "/system/settings"];
const name = (path) => path.replace(/\W+/g, "-").replace(/^-|-$/g, "") || "now";
const began = Date.now();
const page = await b.open();
for (const path of pages) {
  await b.visit(page, path);
  await b.both(page, path, name(path));
}
const enc = encodeURIComponent;
for (const [kind, open] of Object.entries({
  machine: `machine//${enc(MACHINE)}`, cluster: "cluster/shard-0/red", shard: "shard/shard-0", ...(POD ? { pod: `pod/green/${POD}` } : {}),
})) {
  await b.visit(page, `/?open=${enc(open)}`);
  await page.waitForSelector(".drawer h1");
  await b.settled(page, kind);
  await b.both(page, `drawer of a ${kind}`, kind);
}
console.log(`pages: ${Date.now() - began} ms`);
await page.context().close();

/** What a person without a mouse has: keys, and what is on the page. */
await b.story("why is my Pod waiting", async (page) => {
  await b.visit(page, "/");
  await page.waitForSelector(".list.wait li");
  const rows = await page.locator(".list.wait li").allTextContents();
  const down = rows.findIndex((r) => r.includes("green")) + 1;
  must(down > 0, `Now does not list the need of green that waits: ${rows.join(" / ")}`);
  for (let i = 0; i < down; i++) await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".drawer .funnel");
  await b.judge(page, "why is my Pod waiting: the need");
  const said = await page.locator(".drawer").textContent();
  for (const part of ["What would help", "From all machines to those it gets"]) must(said.includes(part), `the need says no "${part}": ${said.slice(0, 400)}`);
  const shown = page.url();
  await page.keyboard.press("Escape");
  await page.waitForSelector(".drawer", { state: "detached" });
  must(new URL(page.url()).pathname === "/", "escape leaves the page");
  await page.goto(shown); // who opens the link sees what the sender saw
  await page.waitForSelector(".drawer .funnel");
});
const life = (title, machine, sentence) => b.story(title, async (page) => {
  await b.visit(page, "/demand");
  await page.keyboard.press("/");
  await page.keyboard.type(machine);
  await page.waitForFunction((m) => document.querySelector(".hits li[aria-selected=true] .name")?.textContent === m, machine);
  await page.keyboard.press("Enter");
  await page.waitForSelector(".drawer .timeline li .sentence");
  const said = await page.locator(".drawer .timeline").textContent();
  must(sentence.test(said), `the life of ${machine} does not say why it left: ${said.slice(0, 600)}`);
});
await life("why was this machine taken away", MACHINE, /interrupt|took it back|takes? it back/i);
if (VICTIM) await life("who took this machine", VICTIM, /green/);
await b.story("where does the money go", async (page) => {
  await b.visit(page, "/");
  await page.keyboard.press("g");
  await page.keyboard.press("m");
  await page.waitForSelector("[aria-label=Cost] tbody tr");
  const said = await page.locator("[aria-label=Cost]").textContent();
  must(said.includes("red") && said.includes("$"), `Money does not say what red costs: ${said.slice(0, 300)}`);
  await page.locator("nav[aria-label=Money] a", { hasText: "Waste" }).focus();
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => location.pathname === "/money/waste");
  await b.settled(page, "waste");
});
await b.story("keys", async (page) => {
  await b.visit(page, "/");
  for (const [key, path] of [["d", "/demand"], ["f", "/fleet"], ["m", "/money"], ["h", "/history"], ["s", "/system"], ["n", "/"]]) {
    await page.keyboard.press("g");
    await page.keyboard.press(key);
    await page.waitForFunction((p) => location.pathname === p, path);
  }
  await page.keyboard.press("?");
  await page.waitForSelector("[role=dialog]");
  await page.keyboard.press("Escape");
  await page.waitForSelector("[role=dialog]", { state: "detached" });
});
await b.end();
