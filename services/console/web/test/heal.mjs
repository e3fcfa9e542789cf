// A shard that is killed and starts again, and a coordinator that changes its leader, while pages are open: each page says so, and heals
// without a reload. node heal.mjs ADDRESS; CONTROL is where the fleet takes orders.
import { must, start } from "./browser.mjs";

const base = process.argv[2];
const order = async (what) => {
  const got = await fetch(`${process.env.CONTROL}/${what}`, { method: "POST" });
  must(got.ok, `${what}: ${await got.text()}`);
};
const b = await start(base);
const whole = "^●live$|^◇coordinator rebuilding$"; // a new leader rebuilds for half a minute what shards told the old one; that is said and is no fault
const freshness = (page, words) =>
  page.waitForFunction((w) => document.querySelector("header.top .end [role=status]")?.textContent?.match(new RegExp(w)), words);

await b.story(
  "a shard is killed and starts again",
  async (first) => {
    const pages = {};
    for (const path of ["/", "/demand", "/fleet/machines", "/system/shards"]) {
      pages[path] = path === "/" ? first : await b.open({ lost: true });
      await b.visit(pages[path], path);
      await freshness(pages[path], whole);
      await pages[path].evaluate(() => {
        window.kept = true;
      }); // gone after a reload
    }
    await pages["/demand"].waitForSelector(".grid.ladder .r");
    await order("kill-shard");
    for (const [path, page] of Object.entries(pages)) {
      await freshness(page, "shard-1.*(old|not heard)").catch(() => b.wrong.add(`${path}: nothing says that shard-1 is away`));
    }
    await pages["/"].waitForFunction(() => document.querySelector("h1")?.textContent?.includes("Shard-1 gives no answer"));
    await pages["/system/shards"].waitForFunction(() =>
      document.querySelector("[aria-label=Shards]")?.textContent?.includes("no answer for"),
    );
    must((await pages["/demand"].locator(".grid.ladder .r").count()) > 0, "Demand lost its rows");
    await b.judge(pages["/"], "Now while a shard is away");
    await b.picture(pages["/"], "stale-light");
    await order("start-shard");
    for (const [path, page] of Object.entries(pages)) {
      await freshness(page, whole).catch(() => b.wrong.add(`${path}: it does not heal`));
      must(await page.evaluate(() => window.kept), `${path} was loaded again`);
    }
  },
  { lost: true },
);

await b.story(
  "the coordinator changes its leader",
  async (first) => {
    const pages = {};
    for (const path of ["/", "/system/coordinator"]) {
      pages[path] = path === "/" ? first : await b.open({ lost: true });
      await b.visit(pages[path], path);
      await freshness(pages[path], whole);
      await pages[path].evaluate(() => {
        window.kept = true;
        window.said = []; // everything that the header and the page said meanwhile
        const look = () => {
          for (const e of document.querySelectorAll("header.top .end [role=status], .note"))
            if (!window.said.includes(e.textContent)) window.said.push(e.textContent);
        };
        new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
      });
    }
    await order("kill-leader");
    for (const [path, page] of Object.entries(pages)) {
      await page
        .waitForFunction(() => window.said.some((s) => /coordinator|rebuilding/i.test(s)))
        .catch(() => b.wrong.add(`${path}: nothing says that the coordinator changes its leader`));
      await freshness(page, whole).catch(() => b.wrong.add(`${path}: it does not heal`));
    }
    await order("new-leader");
    for (const [path, page] of Object.entries(pages)) must(await page.evaluate(() => window.kept), `${path} was loaded again`);
  },
  { lost: true },
);

await b.story(
  "the console itself starts again",
  async (page) => {
    await b.visit(page, "/demand");
    await freshness(page, whole);
    await page.evaluate(() => {
      window.kept = true;
    });
    await page.waitForSelector(".grid.ladder .r");
    await order("kill-console");
    await freshness(page, "Lost, connecting again");
    must((await page.locator(".grid.ladder .r").count()) > 0, "Demand lost its rows");
    await order("start-console");
    await freshness(page, whole);
    must(await page.evaluate(() => window.kept), "the page was loaded again");
  },
  { lost: true },
);
await b.story(
  "the console hangs, and nobody closes the connection",
  async (page) => {
    await b.visit(page, "/demand");
    await page.waitForSelector(".grid.ladder .r");
    await freshness(page, whole);
    await order("hang-console");
    await freshness(page, "^◇.* old$"); // what is shown has its age
    await freshness(page, "Lost, connecting again");
    must((await page.locator(".grid.ladder .r").count()) > 0, "Demand lost its rows");
    await order("wake-console");
    await freshness(page, whole);
  },
  { lost: true },
);
await b.end();
