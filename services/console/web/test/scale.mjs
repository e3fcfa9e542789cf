// The pages on a large fleet (B13): node scale.mjs LARGE SMALL still, while nothing changes, and then node scale.mjs LARGE SMALL MINUTES,
// while changes come in. SCROLL=60 scrolls for so many seconds instead of 900. The last line of the output is what was measured, times in milliseconds.
import { readFileSync } from "node:fs";
import { must, start } from "./browser.mjs";

const [large, small, still] = [process.argv[2], process.argv[3], process.argv[4] === "still"];
const minutes = Number(process.argv[4]);
const out = {
  First: [],
  Small: [],
  Demand: [],
  Filters: [],
  SmallFilters: [],
  NeedFilters: [],
  Search: [],
  Heap: [],
  Resident: [],
  Wrong: [],
};
const b = await start(large);
const say = (...a) => console.error(...a);

/** From the start of a navigation until what is asked for is on the page. */
async function opened(base, path, ready) {
  const page = await b.open();
  await page.addInitScript((is) => {
    const look = () =>
      document.querySelector(is)
        ? requestAnimationFrame(() => {
            window.readyAt = performance.now();
          })
        : requestAnimationFrame(look);
    requestAnimationFrame(look);
  }, ready);
  await page.goto(base + path, { waitUntil: "commit" });
  const took = await page.waitForFunction(() => window.readyAt).then((h) => h.jsonValue());
  await page.context().close();
  return took;
}
for (let i = 0; i < 6; i++) {
  const [s, l] = [await opened(small, "/", ".figures"), await opened(large, "/", ".figures")];
  const d = await opened(large, "/demand", ".grid.ladder .r .name");
  if (i > 0) {
    // the first of each is the browser's own start
    out.Small.push(s);
    out.First.push(l);
    out.Demand.push(d);
  }
}
say("first", out.First, out.Small, out.Demand);

/** Changes one filter and waits until the rows of the answer are shown: in each row the cell of `column` holds `want`. */
const filtered = (page, label, value, column, want, kind) =>
  page.evaluate(
    ([label, value, column, want, kind]) =>
      new Promise((done, fail) => {
        const box = [...document.querySelectorAll(".filters label")]
          .find((l) => l.textContent.startsWith(label))
          .querySelector("input,select");
        const began = performance.now();
        Object.getOwnPropertyDescriptor(Object.getPrototypeOf(box), "value").set.call(box, value);
        box.dispatchEvent(new Event(box.tagName === "SELECT" ? "change" : "input", { bubbles: true }));
        const look = () => {
          const rows = [...document.querySelectorAll(`.grid.${kind} .r`)].filter((r) => r.children.length > 1);
          const shown = rows.length > 0 && !document.querySelector(`.grid.${kind}[aria-busy=true]`);
          if (shown && (column < 0 || rows.every((r) => r.children[column]?.textContent.includes(want)))) done(performance.now() - began);
          else if (performance.now() - began > 10000)
            fail(
              new Error(
                `${label} ${value}: not in 10 s, ${rows.length} rows, ${document.querySelector(`.grid.${kind}`)?.getAttribute("aria-busy")}, first ${rows[0]?.textContent}, page ${document.querySelector(".page").textContent.slice(0, 600)}`,
              ),
            );
          else requestAnimationFrame(look);
        };
        requestAnimationFrame(look);
      }),
    [label, value, column, want, kind],
  );
const pick = (list, n) => list[(n * 7919) % list.length];
async function filters(base, into, rounds) {
  const page = await b.open();
  await page.goto(`${base}/fleet/machines`);
  await page.waitForSelector(".grid.machines .r .name");
  const known = await page.evaluate(() =>
    [...document.querySelectorAll(".grid.machines .r")]
      .filter((r) => r.children.length > 5)
      .map((r) => [...r.children].map((c) => c.textContent)),
  );
  for (let n = 0; n < rounds; n++) {
    const row = pick(known, n);
    for (const [label, value, column, want] of [
      ["State", "3", 1, "idle"],
      ["State", "5", 1, "configured"],
      ["Type", row[2], 2, row[2]],
      ["Zone", row[3], 3, row[3]],
      ["Class", String(1 + (n % 4)), 5, ["bare metal", "reserved", "on demand", "spot"][n % 4]],
    ]) {
      try {
        into.push(await filtered(page, label, value, column, want, "machines"));
      } catch (e) {
        out.Wrong.push(e.message);
      }
      await filtered(page, label, "", -1, "", "machines");
    }
    if (row[4]) {
      into.push(await filtered(page, "Cluster", row[4], 4, row[4], "machines"));
      await filtered(page, "Cluster", "", -1, "", "machines");
    }
  }
  await page.context().close();
}
await filters(large, out.Filters, 12);
if (still) await filters(small, out.SmallFilters, 6);
say("filters", Math.max(...out.Filters), still && Math.max(...out.SmallFilters));
{
  const page = await b.open();
  await page.goto(`${large}/demand`);
  await page.waitForSelector(".grid.ladder .r .name");
  for (let n = 0; n < 10; n++) {
    for (const [value, want] of [
      ["waiting", ""],
      ["met", "met"],
    ]) {
      out.NeedFilters.push(await filtered(page, "Show", value, want ? 1 : -1, want, "ladder"));
      await filtered(page, "Show", "", -1, "", "ladder");
    }
    const cluster = `cluster-${String(n * 37).padStart(5, "0")}`;
    out.NeedFilters.push(await filtered(page, "Cluster", cluster, 2, cluster, "ladder"));
    await filtered(page, "Cluster", "", -1, "", "ladder");
  }
  for (const text of [
    "cluster-00042",
    "cluster-009",
    "row-777",
    "cluster-0001",
    "cluster-00999",
    "row-1234",
    "row-49",
    "cluster-00500",
    "row-321",
    "cluster-0077",
  ]) {
    out.Search.push(
      await page.evaluate(
        (text) =>
          new Promise((done, fail) => {
            const box = document.querySelector(".search input");
            const began = performance.now();
            box.focus();
            box.value = text;
            box.dispatchEvent(new Event("input", { bubbles: true }));
            const look = () => {
              if ([...document.querySelectorAll("#hits [role=option]")].some((h) => h.textContent.includes(text)))
                done(performance.now() - began);
              else if (performance.now() - began > 30000) fail(new Error(`search ${text}: nothing in 30 s`));
              else requestAnimationFrame(look);
            };
            requestAnimationFrame(look);
          }),
        text,
      ),
    );
  }
  await page.context().close();
}
say("needs", Math.max(...out.NeedFilters), "search", out.Search);

/** The longest tasks of the page's main thread in a trace of what `during` does. */
async function traced(page, during) {
  const cdp = await page.context().newCDPSession(page);
  const tasks = [];
  const mains = new Set();
  const all = [];
  cdp.on("Tracing.dataCollected", ({ value }) => {
    for (const e of value) {
      if (e.name === "thread_name" && e.args?.name === "CrRendererMain") mains.add(`${e.pid} ${e.tid}`);
      if (e.name === "RunTask" && e.dur > 20_000) all.push(e);
    }
  });
  await cdp.send("Tracing.start", {
    transferMode: "ReportEvents",
    traceConfig: { recordMode: "recordUntilFull", includedCategories: ["disabled-by-default-devtools.timeline"] },
  });
  const value = await during();
  const complete = new Promise((done) => {
    cdp.on("Tracing.tracingComplete", done);
  });
  await cdp.send("Tracing.end");
  await complete;
  for (const e of all) if (mains.has(`${e.pid} ${e.tid}`)) tasks.push({ wall: e.dur / 1000, cpu: (e.tdur ?? 0) / 1000 });
  await cdp.detach();
  return { value, tasks };
}
if (still) {
  const page = await b.open({ height: 1000 });
  await page.goto(`${large}/fleet/machines`);
  await page.waitForSelector(".grid.machines .r .name");
  await page.evaluate(() => {
    const grid = document.querySelector(".grid.machines");
    const seen = new Uint8Array(2_000_000);
    window.counted = { rows: 0, shown: 0 };
    window.scrolled = (ms) =>
      new Promise((done) => {
        const end = performance.now() + ms;
        const step = () => {
          for (const r of grid.querySelectorAll(".r")) {
            const i = Number(r.getAttribute("aria-rowindex"));
            const full = r.children.length > 1;
            if (seen[i] === 0) window.counted.rows++;
            if (full && seen[i] < 2) window.counted.shown++;
            seen[i] = Math.max(seen[i], full ? 2 : 1);
          }
          const bottom = grid.scrollTop + grid.clientHeight >= grid.scrollHeight - 2;
          if (bottom || performance.now() > end) done(bottom);
          else {
            grid.scrollTop += grid.clientHeight - 56;
            requestAnimationFrame(step);
          }
        };
        requestAnimationFrame(step);
      });
  });
  const tasks = [];
  let spent = 0;
  let same = 0;
  let last = -1;
  for (const end = Date.now() + Number(process.env.SCROLL ?? 900) * 1000; Date.now() < end; ) {
    const began = Date.now();
    const { value: bottom, tasks: these } = await traced(page, () => page.evaluate(() => window.scrolled(20_000)));
    tasks.push(...these);
    spent += Date.now() - began;
    const { rows } = await page.evaluate(() => window.counted);
    if (bottom) {
      // a list that grows at its end is not at its end yet
      same = rows === last ? same + 1 : 0;
      if (same > 2) break;
      await page.waitForTimeout(300);
    }
    last = rows;
  }
  const counted = await page.evaluate(() => window.counted);
  Object.assign(out, {
    ScrollRows: counted.rows,
    ScrollShown: counted.shown,
    ScrollSeconds: spent / 1000,
    ScrollLongest: Math.max(0, ...tasks.map((t) => t.wall)),
    ScrollLongestCPU: Math.max(0, ...tasks.map((t) => t.cpu)),
    ScrollTasks: tasks.filter((t) => t.wall > 100).length,
  });
  say(
    "scroll",
    out.ScrollRows,
    out.ScrollShown,
    out.ScrollSeconds,
    "longest",
    out.ScrollLongest,
    out.ScrollLongestCPU,
    "above 100",
    out.ScrollTasks,
  );
  await page.context().close();
}
if (!still) {
  const page = await b.open();
  await page.addInitScript(() => {
    window.longest = 0;
    new PerformanceObserver((list) => {
      for (const e of list.getEntries()) window.longest = Math.max(window.longest, e.duration);
    }).observe({ entryTypes: ["longtask"] });
  });
  await page.goto(`${large}/demand`);
  await page.waitForSelector(".grid.ladder .r .name");
  await page.waitForTimeout(5000);
  await page.evaluate(() => {
    window.longest = 0;
  });
  const cdp = await page.context().newCDPSession(page);
  const browser = await page.context().browser().newBrowserCDPSession();
  for (const end = Date.now() + minutes * 60_000; Date.now() < end; ) {
    await page.waitForTimeout(Math.min(20_000, minutes * 6_000));
    const before = await page.evaluate(() => window.longest);
    out.LiveLongest = Math.max(out.LiveLongest ?? 0, before);
    await cdp.send("HeapProfiler.collectGarbage");
    out.Heap.push((await cdp.send("Runtime.getHeapUsage")).usedSize);
    await page.evaluate(() => {
      window.longest = 0;
    }); // what a forced collection took is not the page's
    const { processInfo } = await browser.send("SystemInfo.getProcessInfo");
    out.Resident.push(Math.max(...processInfo.filter((p) => p.type === "renderer").map((p) => resident(p.id))));
  }
  must((await page.locator(".grid.ladder .r").count()) > 0, "Demand lost its rows");
  say("live", out.Heap, out.Resident, out.LiveLongest);
}
function resident(pid) {
  try {
    return 1024 * Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]);
  } catch {
    return 0;
  }
}
for (const w of b.wrong) if (w.includes(small)) b.wrong.delete(w); // the small fleet is another address, and meant
out.Wrong.push(...b.wrong);
console.log(JSON.stringify(out));
await b.end();
