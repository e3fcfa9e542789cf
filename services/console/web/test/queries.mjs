// The commands behind "query".
import { appendFileSync } from "node:fs";

/** Opens each "query" of the page and keeps the commands behind it: COMMANDS is where whoever started this finds and runs them. */
export async function queries(page, what, within = "main") {
  const buttons = page.locator(`${within} .ask > button`);
  const n = await buttons.count();
  for (let i = 0; i < n; i++) {
    await buttons.nth(i).click();
    await page.waitForSelector(".ask .pop");
    for (const text of await page.locator(".ask .pop pre").allTextContents())
      appendFileSync(process.env.COMMANDS, `${JSON.stringify({ page: what, command: text })}\n`);
    await buttons.nth(i).click(); // the same button closes it
    await page.waitForSelector(".ask .pop", { state: "detached" });
  }
}
