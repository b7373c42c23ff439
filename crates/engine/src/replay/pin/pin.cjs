// Holds a Node program's clock and chance still, as far as the program asks the language for them. Timers,
// `performance` and `crypto.randomBytes` are left alone: waiting and drawing keys are not what is repeated.
"use strict";

const { COFFERDAM_CLOCK: clock, COFFERDAM_SEED: seed } = process.env;

if (clock !== undefined) {
  const now = Math.floor(Number(clock) / 1000);
  const Real = Date;
  globalThis.Date = class Date extends Real {
    constructor(...given) {
      super(...(given.length === 0 ? [now] : given));
    }
    static now() {
      return now;
    }
    static [Symbol.hasInstance](value) {
      return Real[Symbol.hasInstance].call(Real, value);
    }
  };
}

if (seed !== undefined) {
  // SplitMix64, of which the upper half is used.
  let state = BigInt(seed) & 0xffffffffffffffffn;
  const next = () => {
    state = (state + 0x9e3779b97f4a7c15n) & 0xffffffffffffffffn;
    let z = state;
    z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & 0xffffffffffffffffn;
    z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & 0xffffffffffffffffn;
    return Number((z ^ (z >> 31n)) >> 32n);
  };
  Math.random = () => next() / 0x100000000;
  const crypto = require("node:crypto");
  const uuid = () => {
    const hex = Array.from({ length: 4 }, () => next().toString(16).padStart(8, "0")).join("");
    const variant = "89ab"[parseInt(hex[16], 16) & 3];
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20)}`;
  };
  crypto.randomUUID = uuid;
  if (globalThis.crypto) {
    globalThis.crypto.randomUUID = uuid;
  }
}
