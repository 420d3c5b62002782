"use strict";
// Where the time of a run goes.
page.view("time", "Time", (root) => {
  root.append(page.time(page.record.plan.cost_ns));
});
