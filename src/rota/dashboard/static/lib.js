// What every module needs of the libraries, under one roof.
import { h } from "preact";
import htm from "htm";
import { root } from "./root.js";

export { Fragment, createContext, render } from "preact";
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
export { batch, computed, effect, signal, useComputed, useSignal } from "@preact/signals";

// Links are written as if the dashboard were at the root of its host.
const rooted = (type, props, ...children) =>
  h(type, type === "a" && props?.href?.startsWith?.("/") ? { ...props, href: root + props.href } : props, ...children);

export const html = htm.bind(root ? rooted : h);
