"use strict";
// Where buffers lie, and when.
page.view("memory", "Memory", (root) => {
  root.append(page.bytes(page.record.plan.arena_nbytes));
});
