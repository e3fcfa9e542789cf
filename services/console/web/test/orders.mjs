// Orders through a console that allows them: node orders.mjs ADDRESS. ADDRESS is a proxy that says the viewer is alice, who may; READER is one
// that says bob, who may only look.
import { must, start } from "./browser.mjs";

const base = process.argv[2];
const reader = process.env.READER;
const drawer = `/system?open=${encodeURIComponent("shard/shard-0")}`;
const note = (page) => page.locator(".drawer .note.warn", { hasText: "Paused" });
/** Waits until the next key goes to this part of the order. */
const on = (page, what) => page.waitForFunction((w) => document.activeElement?.matches(`.order form ${w}`), what);
const pause = "/bigfleet.v1alpha1.ShardAdmin/PauseActuation";

const b = await start(base);
await b.story("who may give orders pauses a shard and resumes it, by keyboard", async (page) => {
  await b.visit(page, drawer);
  await page.waitForSelector(".drawer .facts");
  must((await note(page).count()) === 0, "the shard is paused before anybody paused it");
  const group = (name) => page.locator(`.drawer .order[aria-label^="${name} shard shard-0"]`);
  await group("Pause").locator("button").first().focus();
  await page.keyboard.press("Enter");
  await on(page, "input");
  must(await group("Pause").locator("button[type=submit]").isDisabled(), "an order without a reason can be sent");
  await page.keyboard.type("a bad image <b>goes</b> round");
  await page.keyboard.press("Enter");
  await on(page, "button[type=submit]");
  const effect = await group("Pause").locator("form").textContent();
  must(
    /No action starts any more/.test(effect) && /the shard would start: /.test(effect) && /alice@example\.com/.test(effect),
    `before it is done: ${effect}`,
  );
  must((await note(page).count()) === 0, "the check paused the shard");
  await b.judge(page, "an order that is checked");
  await b.picture(page, "order-light");
  await page.keyboard.press("Enter");
  await on(page, "button.quiet"); // the order is given; the shard may have said so before
  await note(page).waitFor();
  const kept = await note(page).textContent();
  must(/for alice@example\.com/.test(kept) && kept.includes("<b>goes</b>"), `the pause says: ${kept}`);
  await page.keyboard.press("Escape");
  await group("Resume").locator("button").first().focus();
  await page.keyboard.press("Enter");
  await on(page, "input");
  await page.keyboard.type("it is gone");
  await page.keyboard.press("Enter");
  await on(page, "button[type=submit]");
  await page.keyboard.press("Enter");
  await note(page).waitFor({ state: "detached" });
  await b.visit(page, `${drawer}&at=${encodeURIComponent(new Date().toISOString())}`);
  await page.waitForSelector(".drawer .facts");
  must((await page.locator(".order").count()) === 0, "an order is offered on the page of another moment");
});

/** What a page at this address may send, and what came back. */
const sent = (page, to, headers) =>
  page.evaluate(
    async ([url, h]) => {
      try {
        const got = await fetch(url, {
          method: "POST",
          body: JSON.stringify({ reason: "forged" }),
          headers: h,
          mode: h["content-type"] === "application/json" ? "cors" : "no-cors",
        });
        return `${got.status} ${await got.text()}`;
      } catch (e) {
        return `refused: ${e.message}`;
      }
    },
    [to, headers],
  );

const looks = await start(reader);
await looks.story(
  "who may only look is offered nothing, and refused when asking for it",
  async (page) => {
    await looks.visit(page, drawer);
    await page.waitForSelector(".drawer .facts");
    must((await page.locator(".order, .drawer .order").count()) === 0, "a reader is offered an order");
    const answer = await sent(page, pause, {
      "content-type": "application/json",
      "bigfleet-target": "shard-0",
      "x-user": "alice@example.com",
      "bigfleet-actor": "alice@example.com",
    });
    must(/^403 .*permission_denied/.test(answer), `a reader who asks for it gets: ${answer}`);
    await looks.visit(page, "/system/settings");
    must(/bob@example\.com/.test(await page.locator("main").textContent()), "Settings do not say who looks");
    // A page of another site, open in the same browser.
    const elsewhere = await looks.open({ foreign: true });
    await elsewhere.goto(`${reader}/assets`); // another origin, without our policy
    for (const [kind, headers] of Object.entries({
      JSON: { "content-type": "application/json", "bigfleet-target": "shard-0" },
      "a form": { "content-type": "text/plain" },
    })) {
      const answer = await sent(elsewhere, base + pause, headers);
      must(/^refused|^0 |^403/.test(answer), `${kind} of another site's page gets: ${answer}`);
    }
  },
  { lost: true },
);
for (const w of looks.wrong) b.wrong.add(w);
await looks.close();
await b.end();
