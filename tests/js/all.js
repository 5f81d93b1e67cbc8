// All tests in one process, which loads the document once: node --test tests/js/all.js
const { readdirSync } = require("node:fs");

for (const name of readdirSync(__dirname)) if (name.endsWith(".test.js")) require(`./${name}`);
