// Every page in both themes, and the three questions by keyboard alone, on a running fleet: node pages.mjs ADDRESS.
// MACHINE is one that was taken back by its cloud, VICTIM one that a more urgent need took, POD and READY namespace/name of a Pod that
// waits and of one that is ready, both in cluster green.
import { go, heard, must, patience, places, start } from "./browser.mjs";
import { queries } from "./queries.mjs";

const base = process.argv[2];
const { MACHINE, VICTIM, POD, READY } = process.env;
const b = await start(base);

const whatif = `/money/whatif?edits=${encodeURIComponent(JSON.stringify([{ do: "scale", cluster: "blue", factor: 2 }]))}`;
const pages = places.toSpliced(places.indexOf("/money/whatif") + 1, 0, whatif);
const name = (path) => (path === whatif ? "money-whatif-edits" : path.replace(/\W+/g, "-").replace(/^-|-$/g, "") || "now");
const began = Date.now();
const page = await b.open();
for (const path of pages) {
  await b.visit(page, path);
  await b.both(page, path, name(path));
  await queries(page, path);
  for (const [width, height] of [
    [390, 800],
    [1920, 1080],
  ]) {
    // a telephone, a wall
    await page.setViewportSize({ width, height });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    if (wide > 0) b.wrong.add(`${path} is ${wide} px wider than a window of ${width} px`);
    if (width < 400 && ["/", "/demand", "/money"].includes(path)) await b.picture(page, `phone-${name(path)}`);
  }
  await page.setViewportSize({ width: 1280, height: 800 });
}
const enc = encodeURIComponent;
for (const [kind, open] of Object.entries({
  machine: `machine//${enc(MACHINE)}`,
  cluster: "cluster/shard-0/red",
  shard: "shard/shard-0",
  pod: `pod/green/${READY}`,
})) {
  await b.visit(page, `/?open=${enc(open)}`);
  await page.waitForSelector(".drawer h1");
  await b.settled(page, kind);
  await b.both(page, `drawer of a ${kind}`, kind);
  await queries(page, kind, ".drawer");
}
await b.visit(page, "/");
await page.waitForSelector(".list.wait li");
await page.locator(".list.wait li", { hasText: "green/" }).first().locator("a").click();
await page.waitForSelector(".drawer .funnel");
await b.both(page, "drawer of a need", "need");
await queries(page, "need", ".drawer");
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
  for (const part of ["created", "requested", "rolled up", "No machine is planned for it yet"])
    must(path.includes(part), `the Pod's path says no "${part}": ${path.slice(0, 600)}`);
  await b.judge(page, "why is my Pod waiting: its path");
  await page.locator(".drawer a", { hasText: "its need, and why" }).focus();
  await page.keyboard.press("Enter");
  await page.waitForSelector(".drawer .funnel");
  const said = await page.locator(".drawer").textContent();
  await page.waitForFunction(() => /Requested by/.test(document.querySelector(".drawer").textContent));
  const asked = await page.locator(".drawer .facts").textContent();
  must(asked.includes(`${POD.split("/")[0]}, 1 request`), `the need does not say which namespace requests it: ${asked.slice(0, 400)}`);
  for (const part of ["What would help", "From all machines to those it gets"])
    must(said.includes(part), `the need says no "${part}": ${said.slice(0, 400)}`);
  const shown = page.url();
  await page.keyboard.press("Escape");
  await page.waitForSelector(".drawer", { state: "detached" });
  must(new URL(page.url()).pathname === "/money", "escape leaves the page");
  await page.goto(shown); // who opens the link sees what the sender saw
  await page.waitForSelector(".drawer .funnel");
});
await b.story("what was spent today", async (page) => {
  await b.visit(page, "/");
  const line = page.locator(".figures .spark");
  await line.waitFor();
  const said = await line.getAttribute("aria-label");
  must(/^Spend today: \$[\d.,]+ an hour at first, \$[\d.,]+ at most, \$[\d.,]+ now$/.test(said), `the line of spend says ${said}`);
});
await b.story("what waits, from Now", async (page) => {
  await b.visit(page, "/");
  await page.waitForSelector(".list.wait li");
  await heard(page);
  await page.keyboard.press("j");
  const first = await page.locator(".list.wait li.on .name").textContent();
  await page.keyboard.press("Enter");
  await page.waitForSelector(".drawer .funnel");
  must((await page.locator(".drawer h1").textContent()).includes(first.split("/")[0]), `the drawer is not of ${first}`);
});
const life = (title, machine, sentence) =>
  b.story(title, async (page) => {
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
  await go(page, "m");
  await page.waitForSelector("[aria-label=Cost] tbody tr");
  const said = await page.locator("[aria-label=Cost]").textContent();
  must(said.includes("red") && said.includes("$"), `Money does not say what red costs: ${said.slice(0, 300)}`);
  const sums = await page.locator(".page").textContent();
  for (const part of [
    /Clusters request [\d,.]+ cpu/,
    /of which no machine covers [\d,.]+ cpu/,
    /provide [\d,.]+ cpu/,
    /requested \$[\d.,]+/,
  ])
    must(part.test(sums), `Money does not say what is requested and provided, ${part}: ${sums.slice(0, 600)}`);
  await page.locator("nav[aria-label=Money] a", { hasText: "Waste" }).focus();
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => location.pathname === "/money/waste");
  await b.settled(page, "waste");
  await page.waitForSelector("[aria-label='Bought and not requested'] tbody tr");
  const waste = await page.locator("[aria-label='Bought and not requested']").textContent();
  must(waste.includes("red") && /cpu/.test(waste), `Waste does not say what red requests: ${waste.slice(0, 300)}`);
});
await b.story("the map is walked by keys", async (page) => {
  await b.visit(page, "/fleet");
  await page.waitForFunction(() => document.querySelector("figure.map canvas")?.style.height); // its machines are in their places
  await page.locator("figure.map canvas").focus();
  await page.keyboard.press("ArrowRight");
  const first = await page.locator("figure.map figcaption").textContent();
  await page.keyboard.press("End");
  const last = await page.locator("figure.map figcaption").textContent();
  must(first !== last && last.includes("/h"), `the keys do not go from machine to machine: ${first}, ${last}`);
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("ArrowDown");
  await b.judge(page, "the map is walked by keys");
  await page.keyboard.press("Home");
  const ring = await page.locator("figure.map figcaption").textContent(); // machines may have come and gone since the first key
  await page.keyboard.press("Enter");
  await page.waitForSelector(".drawer .timeline li");
  const opened = await page.locator(".drawer h1").textContent();
  must(opened.includes(ring.split(" ")[0]), `Enter opens ${opened}, the ring was at ${ring}`);
});
await b.story("what if, in a link", async (page) => {
  await b.visit(page, "/money/whatif");
  await page.locator(".empty a").first().click(); // an example
  await page.waitForFunction(() => /Spend before/.test(document.querySelector(".page").textContent));
  const shown = page.url();
  const said = await page.locator(".figures").textContent();
  const other = await b.open();
  await other.goto(shown);
  await other.waitForFunction(() => /Spend before/.test(document.querySelector(".page").textContent));
  must(
    said.startsWith("Spend before") && (await other.locator("ul.filters button").count()) === 1,
    `who opens the link does not see the change: ${said}`,
  );
});
await b.story("a moment of history is the moment of every page", async (page) => {
  await b.visit(page, "/history");
  const slider = page.locator("input[aria-label=Moment]");
  await slider.focus();
  await page.keyboard.press("ArrowLeft");
  await page.waitForFunction(() => new URLSearchParams(location.search).get("at"));
  const at = new URL(page.url()).searchParams.get("at");
  for (const key of ["n", "d", "m"]) {
    await page.keyboard.press("Escape");
    await page.evaluate(() => document.activeElement?.blur());
    await go(page, key);
    await page.waitForFunction(
      (t) =>
        new URLSearchParams(location.search).get("at") === t &&
        /Every page shows/.test(document.querySelector(".moment")?.textContent ?? ""),
      at,
    );
    await b.settled(page, `g ${key} at ${at}`);
  }
  await page.locator(".moment button", { hasText: "Back to now" }).click();
  await page.waitForFunction(() => !new URLSearchParams(location.search).get("at"));
});
await b.story("tables are walked by keys", async (page) => {
  await b.visit(page, "/fleet/clusters");
  await page.waitForSelector("tbody tr a");
  await heard(page);
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  const second = await page.evaluate(() => [...document.querySelectorAll("tbody tr")].findIndex((r) => r.contains(document.activeElement)));
  must(second === 1, `two presses of j lead to row ${second}`);
  await page.keyboard.press("Enter");
  await page.waitForSelector(".drawer .facts");
});
await b.story(
  "a page that is hidden asks nothing, and is live again when it is seen",
  async (page) => {
    const open = new Set();
    let asked = 0;
    page.on("request", (r) => {
      if (r.url().includes("/bigfleet.")) {
        asked++;
        open.add(r);
      }
    });
    for (const end of ["requestfinished", "requestfailed"]) page.on(end, (r) => open.delete(r));
    await b.visit(page, "/demand");
    await page.waitForSelector(".grid.ladder .r");
    const holds = async (is, what) => {
      for (const end = Date.now() + patience; !is() && Date.now() < end; ) await page.waitForTimeout(100);
      must(is(), `${what} holds ${[...open].map((r) => r.url())}`);
    };
    await holds(() => open.size >= 2, "a page that is seen");
    const hide = (hidden) =>
      page.evaluate((h) => {
        Object.defineProperty(document, "hidden", { configurable: true, get: () => h });
        document.dispatchEvent(new Event("visibilitychange"));
      }, hidden);
    await hide(true);
    await holds(() => open.size === 0, "a page that is hidden");
    const before = asked;
    await page.waitForTimeout(2500);
    must(asked === before, `a page that is hidden asked ${asked - before} times`);
    await hide(false);
    await page.waitForFunction(() => document.querySelector("header.top .end [role=status]")?.textContent?.includes("live"));
    await holds(() => open.size >= 2, "a page that is seen again");
  },
  { lost: true },
);
await b.story("a slow link", async (page) => {
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Network.enable");
  await cdp.send("Network.emulateNetworkConditions", {
    offline: false,
    latency: 400,
    downloadThroughput: 200_000,
    uploadThroughput: 20_000,
  });
  await b.visit(page, "/demand");
  await page.waitForSelector(".grid.ladder .r");
  await page.waitForFunction(() => document.querySelector("header.top .end [role=status]")?.textContent?.includes("live"));
});
await b.story("keys", async (page) => {
  await b.visit(page, "/");
  for (const [key, path] of [
    ["d", "/demand"],
    ["f", "/fleet"],
    ["m", "/money"],
    ["h", "/history"],
    ["s", "/system"],
    ["n", "/"],
  ]) {
    await go(page, key);
    await page.waitForFunction((p) => location.pathname === p, path);
  }
  await page.keyboard.press("?");
  await page.waitForSelector("[role=dialog]");
  await page.keyboard.press("Escape");
  await page.waitForSelector("[role=dialog]", { state: "detached" });
});
await b.end();
