// What every module needs of the libraries, under one roof.
import { h } from "preact";
import htm from "htm";

export { Fragment, createContext, render } from "preact";
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
export { batch, computed, effect, signal, useComputed, useSignal } from "@preact/signals";

export const html = htm.bind(h);
