// Every page in both themes, and the three questions by keyboard alone, on a running fleet: node pages.mjs ADDRESS.
// MACHINE is one that was taken back by its cloud, VICTIM one that a more urgent need took, POD and READY namespace/name of a Pod that
// waits and of one that is ready, both in cluster green.
import { must, start } from "./browser.mjs";
import { queries } from "./queries.mjs";

const base = process.argv[2];
const { MACHINE, VICTIM, POD, READY } = process.env;
const b = await start(base);

const pages = ["/", "/demand", "/fleet", "/fleet/machines", "/fleet/clusters", "/fleet/capacity", "/fleet/drains", "/money", "/money/waste", "/money/whatif", "/history", "/history/compare",
  "/system", "/system/sources", "/system/coordinator", "/system/ownership", "/system/moves", "/system/settings"];
const name = (path) => path.replace(/\W+/g, "-").replace(/^-|-$/g, "") || "now";
const began = Date.now();
const page = await b.open();
for (const path of pages) {
  await b.visit(page, path);
  await b.both(page, path, name(path));
  await queries(page, path);
}
const enc = encodeURIComponent;
for (const [kind, open] of Object.entries({
  machine: `machine//${enc(MACHINE)}`, cluster: "cluster/shard-0/red", shard: "shard/shard-0", pod: `pod/green/${READY}`,
})) {
  await b.visit(page, `/?open=${enc(open)}`);
  await page.waitForSelector(".drawer h1");
  await b.settled(page, kind);
  await b.both(page, `drawer of a ${kind}`, kind);
  await queries(page, kind, ".drawer");
}
console.log(`pages: ${Date.now() - began} ms`);
await page.context().close();

/** What a person without a mouse has: keys, and what is on the page. */
const search = async (page, name) => {
  await page.keyboard.press("/");
  await page.keyboard.type(name);
  await page.waitForFunction((n) => document.querySelector(".hits li[aria-selected=true] .name")?.textContent === n, name);
  await page.keyboard.press("Enter");
};
await b.story("why is my Pod waiting", async (page) => {
  await b.visit(page, "/money");
  await search(page, POD);
  await page.waitForSelector(".drawer .timeline li.todo");
  const path = await page.locator(".drawer").textContent();
  for (const part of ["created", "requested", "rolled up", "No machine is planned for it yet"]) must(path.includes(part), `the Pod's path says no "${part}": ${path.slice(0, 600)}`);
  await b.judge(page, "why is my Pod waiting: its path");
  await page.locator(".drawer a", { hasText: "its need, and why" }).focus();
  await page.keyboard.press("Enter");
  await page.waitForSelector(".drawer .funnel");
  const said = await page.locator(".drawer").textContent();
  for (const part of ["What would help", "From all machines to those it gets"]) must(said.includes(part), `the need says no "${part}": ${said.slice(0, 400)}`);
  const shown = page.url();
  await page.keyboard.press("Escape");
  await page.waitForSelector(".drawer", { state: "detached" });
  must(new URL(page.url()).pathname === "/money", "escape leaves the page");
  await page.goto(shown); // who opens the link sees what the sender saw
  await page.waitForSelector(".drawer .funnel");
});
await b.story("what waits, from Now", async (page) => {
  await b.visit(page, "/");
  await page.waitForSelector(".list.wait li");
  await page.keyboard.press("j");
  const first = await page.locator(".list.wait li.on .name").textContent();
  await page.keyboard.press("Enter");
  await page.waitForSelector(".drawer .funnel");
  must((await page.locator(".drawer h1").textContent()).includes(first.split("/")[0]), `the drawer is not of ${first}`);
});
const life = (title, machine, sentence) => b.story(title, async (page) => {
  await b.visit(page, "/demand");
  await search(page, machine);
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
