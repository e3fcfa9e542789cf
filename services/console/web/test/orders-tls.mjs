// Retry, try again and accept, under TLS: node orders-tls.mjs ADDRESS. ADDRESS is a proxy that says the viewer is alice, who may. MACHINE is one of
// shard s0; cluster red waits after its operator's error, and an empty report of it is held.
import { must, start } from "./browser.mjs";

const base = process.argv[2];
const { MACHINE } = process.env;
const b = await start(base);
const drawer = (what) => `/?open=${encodeURIComponent(what)}`;

/** Gives an order by keyboard; says what it would do and what came of it. */
async function give(page, verb, reason) {
  const group = page.locator(`.drawer .order[aria-label^="${verb} "]`);
  const on = (what) => page.waitForFunction((w) => document.activeElement?.matches(`.order form ${w}`), what);
  await group.locator("button").first().focus();
  await page.keyboard.press("Enter");
  await on("input");
  await page.keyboard.type(reason);
  await page.keyboard.press("Enter");
  await on("button[type=submit]");
  const before = await group.locator("form").textContent();
  await page.keyboard.press("Enter");
  await on("button.quiet");
  const after = await group.locator("form").textContent();
  await page.keyboard.press("Enter");
  return { before, after };
}

await b.story("a machine is retried", async (page) => {
  await b.visit(page, drawer(`machine/s0/${encodeURIComponent(MACHINE)}`));
  await page.waitForSelector(".drawer .facts");
  const { before, after } = await give(page, "Retry", "it is stuck");
  must(/asks the provider for its state/.test(before) && /alice@example\.com/.test(before), `before: ${before}`);
  must(/Done/.test(after), `after: ${after}`);
});
await b.story("the waits of a cluster are ended, and its held report is accepted", async (page) => {
  await b.visit(page, drawer("cluster/s0/red"));
  await page.waitForSelector(".drawer .facts");
  must(
    (await page.locator(".drawer").textContent()).includes("the template has no kubelet version"),
    "the drawer does not say what the operator said",
  );
  const again = await give(page, "Try again now", "the template is repaired");
  must(/1 wait after failures would end/.test(again.before), `before: ${again.before}`);
  must(/1 wait after failures ended/.test(again.after), `after: ${again.after}`);
  const accept = await give(page, "Accept its report", "the cluster is being emptied");
  must(/12 before, 0 after/.test(accept.before) && /cannot be undone/.test(accept.before), `before: ${accept.before}`);
  must(/12 before, 0 after/.test(accept.after), `after: ${accept.after}`);
  await page.waitForFunction(() => !document.querySelector(".drawer .order[aria-label^='Accept its report']"));
  await page.waitForFunction(() => document.querySelector(".drawer .facts")?.textContent?.includes("0, 0 waiting"));
});
await b.end();
