// Package console drives the web UI in a real browser on real fleets: every page and the three questions on `bigfleet up`, a shard and a
// coordinator's leader that go while a page is open, and names that attack the page that shows them.
//
// The browser's side is services/console/web/test. Without Node, npm or Chromium the tests say so and skip.
package console
