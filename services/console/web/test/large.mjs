// Lists of half a million rows beside short ones: what a page holds, and what it loads. node large.mjs; LARGE and SMALL are the two consoles, EMPTY
// is one of a fleet that has nothing.
import { must, start } from "./browser.mjs";

const { LARGE, SMALL, EMPTY } = process.env;
const b = await start(LARGE);
const most = 120; // rows in the page: those in view, and some around them
const rows = (page, kind) => page.locator(`.grid.${kind} .r`).count();
const full = (page, kind, text) =>
  page.waitForFunction(([k, t]) => [...document.querySelectorAll(`.grid.${k} .r`)].some((r) => r.textContent.includes(t)), [kind, text]);
/** Bytes that the page has loaded by questions that ended. */
const loaded = (page) =>
  page.evaluate(() =>
    performance
      .getEntriesByType("resource")
      .filter((e) => e.initiatorType === "fetch")
      .reduce((n, e) => n + e.encodedBodySize, 0),
  );

async function opened(base, machine) {
  const page = await b.open();
  await page.goto(`${base}/fleet/machines`);
  await full(page, "machines", machine);
  const bytes = await loaded(page);
  await page.context().close();
  return bytes;
}
const [small, large] = [await opened(SMALL, "m-000001"), await opened(LARGE, "m-000001")];
console.log(`the table of machines loads ${large} bytes, and ${small} of a thousandth`);
if (large > 4 * small) b.wrong.add(`the table of machines loads ${large} bytes, and ${small} of a thousandth`);

await b.story("all machines", async (page) => {
  await b.visit(page, "/fleet/machines");
  await full(page, "machines", "m-000001");
  const held = [];
  for (const [part, want] of [
    [0.5, "m-250"],
    [1, "m-499999"],
    [0.2, "m-100"],
    [0, "m-000001"],
  ]) {
    await page.evaluate((p) => {
      const g = document.querySelector(".grid.machines");
      g.scrollTop = p * (g.scrollHeight - g.clientHeight);
    }, part);
    await full(page, "machines", want);
    held.push(await rows(page, "machines"));
  }
  must(Math.max(...held) <= most, `the page holds ${held} rows`);
  await page.locator(".grid.machines").focus();
  for (let i = 0; i < 40; i++) await page.keyboard.press("j");
  await page.waitForFunction(() => document.querySelector(".grid.machines .r.on .name")?.textContent === "m-000039");
  const type = page.locator(".filters label", { hasText: "Type" }).locator("input");
  await type.fill("type-3");
  await page.waitForFunction(() => {
    const shown = [...document.querySelectorAll(".grid.machines .r")].filter((r) => r.children.length > 2);
    return (
      shown.length > 0 &&
      shown.every((r) => r.children[2].textContent === "type-3") &&
      document.querySelector(".page").textContent.includes("71,429 match")
    );
  });
  await page.evaluate(() => {
    const g = document.querySelector(".grid.machines");
    g.scrollTop = g.scrollHeight;
  });
  await full(page, "machines", "m-499999");
});
await b.story("all needs", async (page) => {
  await b.visit(page, "/demand");
  await full(page, "ladder", "row-00001");
  for (const [part, want] of [
    [0.5, "row-100"],
    [1, "row-19999"],
    [0, "row-00001"],
  ]) {
    await page.evaluate((p) => {
      const g = document.querySelector(".grid.ladder");
      g.scrollTop = p * (g.scrollHeight - g.clientHeight);
    }, part);
    await full(page, "ladder", want);
    must((await rows(page, "ladder")) <= most, `the page holds ${await rows(page, "ladder")} rows`);
  }
  await page.locator(".filters label", { hasText: "Show" }).locator("select").selectOption("waiting");
  await page.waitForFunction(() => document.querySelector(".page").textContent.includes("10,000 match"));
  await full(page, "ladder", "row-00001");
});
await b.story("a fleet that is empty says what to do", async (page) => {
  await page.goto(EMPTY);
  await page.waitForSelector("ol.first li");
  const said = await page.locator("ol.first").textContent();
  for (const part of ["helm install bigfleet-operator", "kubectl create deployment", "bigfleet get needs"])
    must(said.includes(part), `the first page does not say "${part}": ${said}`);
  await b.both(page, "the first page", "first");
  for (const path of ["/demand", "/fleet/machines", "/fleet/clusters"]) {
    await page.goto(EMPTY + path);
    await page.waitForSelector(".empty");
  }
});
for (const w of b.wrong) if (w.includes(SMALL) || w.includes(EMPTY)) b.wrong.delete(w); // another address, and meant
await b.end();
