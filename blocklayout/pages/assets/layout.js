"use strict";
// A layout: where each element lies.
page.start(page.h("h1", {}, page.record.desc));
