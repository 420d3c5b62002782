"use strict";
// A benchmark: how its times are distributed.
page.start(page.h("h1", {}, page.record.title));
