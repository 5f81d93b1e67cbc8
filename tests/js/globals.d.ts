// What the scripts of static/js share, for the type checker alone: no page loads it.

// Elements. A selector does not say what it finds, so a part of a page has the members of every kind of element that the
// scripts work with; a member that no kind has is a mistake.
type More<Kind, Known> = Omit<Kind, keyof Known | "list" | "elements">;
type Part = HTMLElement &
  More<HTMLInputElement, HTMLElement> &
  More<HTMLSelectElement, HTMLInputElement> &
  More<HTMLFormElement, HTMLInputElement & HTMLSelectElement> &
  More<HTMLTextAreaElement, HTMLInputElement & HTMLSelectElement> &
  More<HTMLAnchorElement, HTMLInputElement> &
  More<HTMLDialogElement, HTMLInputElement> &
  More<HTMLTemplateElement, HTMLElement> &
  More<HTMLTimeElement, HTMLElement> &
  More<HTMLLabelElement, HTMLInputElement> & { elements: Record<string, Part> };

interface ParentNode {
  querySelector(selectors: string): Part;
  querySelectorAll(selectors: string): NodeListOf<Part>;
}
interface Document {
  getElementById(id: string): Part;
}
interface Element {
  closest(selectors: string): Part;
  setAttribute(name: string, value: string | number | boolean): void; // what it is given becomes text
}
interface CSSStyleDeclaration {
  setProperty(name: string, value: string | number): void;
}
interface Node {
  cloneNode(deep?: boolean): Part;
}

// Events: of whichever kind, and what htmx or our own scripts tell with them.
type Heard = More<KeyboardEvent, Event> & More<DragEvent, KeyboardEvent> & Pick<PointerEvent, "pointerId"> & Pick<InputEvent, "inputType">;
interface PageEvent extends Omit<Event, "target" | "currentTarget">, Omit<Heard, keyof Event | "relatedTarget" | "detail"> {
  readonly target: Part;
  readonly currentTarget: Part;
  readonly relatedTarget: Part;
  readonly submitter: Part;
  readonly detail: any;
  readonly state: any;
}
interface Element {
  addEventListener(kind: string, act: (event: PageEvent) => unknown, options?: boolean | AddEventListenerOptions): void;
}
interface HTMLElement {
  addEventListener(kind: string, act: (event: PageEvent) => unknown, options?: boolean | AddEventListenerOptions): void;
}
interface Document {
  addEventListener(kind: string, act: (event: PageEvent) => unknown, options?: boolean | AddEventListenerOptions): void;
}
declare function addEventListener(kind: string, act: (event: PageEvent) => unknown, options?: boolean | AddEventListenerOptions): void;

// Libraries of static/vendor, and htmx.
declare const htmx: {
  trigger(element: Element | string, kind: string, detail?: object): boolean;
  ajax(verb: string, path: string, context: object): Promise<void>;
  swap(target: Element, content: string, how: { swapStyle: string }): void;
};
declare const Terminal: new (options: object) => any;
declare const FitAddon: { FitAddon: new () => any };
declare const SearchAddon: { SearchAddon: new () => any };
declare const Unicode11Addon: { Unicode11Addon: new () => any };
declare const WebglAddon: { WebglAddon: new () => any };
declare const WebLinksAddon: { WebLinksAddon: new (open: (event: Event, address: string) => void) => any };

// The way to the files of a folder (folder-pass.js) or of a running session (home-files.js).
type Asked = { headers?: Record<string, string>; body?: XMLHttpRequestBodyInit; signal?: AbortSignal; progress?: (bytes: number) => void };
interface FolderFiles {
  ask(method: string, path: string, options?: Asked): Promise<Response>;
  download(path: string): Promise<void>;
  faultOf(answer: Response): Promise<string>;
  send?(method: string, path: string, options?: Asked): Promise<XMLHttpRequest>;
  follow?(answer: Response, options?: { progress?: (told: any) => void; signal?: AbortSignal }): Promise<any>;
  isPassing?(status: number): boolean;
  bytesAt?(path: string): string;
  csrf?(): string;
}
type Entry = { path: string; file?: File };
type Kept = { path: string; kind: string };
type Sending = {
  answer?: string;
  signal: AbortSignal;
  progress?: (bytes: number) => void;
  paused?: () => void;
  resumed?: () => void;
  inDirectory?: boolean;
};
interface FolderSend {
  sendLarge(folder: string, path: string, file: File, options: Sending): Promise<void>;
  sendSmall(entries: Entry[], options: Sending): Promise<{ kept: Kept[]; refused: { path: string; code: string }[] }>;
  forgetLarge(folder: string, path: string, file: File): void;
}
interface Window {
  portal: any;
  folderFiles: FolderFiles;
  folderSend: FolderSend;
  folderNames: { askAboutTaken(question: { path?: string; number?: number; canReplace?: boolean }): Promise<string> };
  folderPreview(path: string, text: string, words: DOMStringMap): HTMLElement | null;
  tarOf(entries: Entry[]): Blob;
}
interface Error {
  code?: any; // ours are words, those of a DOMException numbers
  kept?: Kept[];
}

// What scripts of one page offer each other.
type Words = Record<string, string | undefined>;
type Tell = (text: string, label?: string, action?: () => unknown) => void;
type Run = {
  run_id: string;
  code?: string;
  code_length?: number;
  context?: string;
  language?: string;
  number?: number;
  state?: string;
  reason?: string;
  exit_code?: number;
  items?: Item[];
  offset?: number;
  end?: number;
  password?: boolean;
  prompt?: string;
};
type Item = {
  type: string;
  text?: string;
  html?: string;
  mime?: string;
  data?: string;
  name?: string;
  value?: string;
  traceback?: string;
  bytes?: number;
  wait?: boolean;
  display?: string;
  updates?: boolean;
};
type Answer = Record<string, any>;
interface ConsoleOutput {
  items: any[];
  add(item: Item): void;
}
interface Cell {
  id: string;
  element: Part;
  code: string;
  length: number;
  state: string;
  context: string;
  number: number;
  offset: number;
  end: number;
  ask: Part;
  stateBox: Part;
  source: Part;
  cut: Part;
  output: ConsoleOutput;
}
interface ConsoleCells {
  cells: Map<string, Cell>;
  show(run: Run, how?: { follow?: boolean }): Cell;
  sort(): Cell | null;
  remove(cell: Cell): void;
  setCode(cell: Cell, run: { code?: string; code_length?: number }): void;
  isWhole(cell: Cell): boolean;
  isLive(cell: Cell): boolean;
  offsets(): Record<string, number>;
  ofContext(name: string): Cell[];
}
interface Socket {
  send(data: string | Uint8Array<ArrayBuffer>): unknown;
  again(): void;
  close(): void;
}
interface Hit {
  line: number;
  start: number;
  end: number;
}
interface LogLines {
  first: number;
  rest: string;
  readonly end: number;
  readonly count: number;
  at(line: number): string;
  add(bytes: Uint8Array): number;
  skip(bytes: Uint8Array): void;
  clear(): void;
}
interface LogFinder {
  words: string;
  version: number;
  onChange: () => void;
  readonly total: number;
  readonly number: number;
  readonly current: Hit | undefined;
  readonly isCapped: boolean;
  hitsOf(line: number): Hit[];
  clear(): void;
  look(words: string): void;
  more(): void;
  step(step: number, line: number): Hit | null;
}
declare var portal: {
  // steady-socket.js, events.js
  refusalOf(address: string): Promise<number>;
  address(path: string): string;
  steadySocket(
    address: () => string,
    told: {
      onOpen: () => void;
      onBytes: (bytes: Uint8Array<ArrayBuffer>) => void;
      onMessage: (text: string) => void;
      onAway: (wait: number, now: () => void) => void;
      onEnd: (code: number, reason: string, isSignedOut: boolean) => void;
    },
  ): Socket;
  noticeOf(box: Part): Tell;
  toSignIn(box: Part): void;
  // page.js
  copy(text: string): Promise<boolean>;
  // screen.js, terminal.js, recording.js
  openScreen(place: Part, options?: { quiet?: boolean } & Record<string, any>): { terminal: any; search: any; refit: () => void };
  remembered(name: string, fallback: any): any;
  remember(name: string, value: unknown): void;
  feedOf(terminal: any, whenRoom: () => void): { take(bytes: Uint8Array): void; hasRoom(): boolean; restart(): void };
  terminalKey(event: { type: string; code: string } & Record<"ctrlKey" | "shiftKey" | "altKey" | "metaKey", boolean>, hasSelection: boolean): string;
  bindTerminal(terminal: any, place: Part, acts: { copy: (text: string) => unknown; find: () => void; leave: () => void }): void;
  showTerminal(status: string): void;
  recorderOf(button: Part, notice: Tell): {
    stop(): void;
    toggle(terminal: { cols: number; rows: number }): void;
    take(bytes: Uint8Array): void;
    resize(size: { cols: number; rows: number }): void;
  };
  readRecording(text: string): { cols: number; rows: number; events: [number, string, string][] } | null;
  // log-lines.js, log-find.js, log.js
  LogLines: new () => LogLines;
  linePieces(line: string): { text: string; classes: string }[];
  linePlain(line: string): string;
  logFinder(lines: LogLines): LogFinder;
  beginLog(): void;
  endLog(): void;
  showLog(status: string): void;
  chooseLog(id: string): void;
  // session-boxes.js, session-live.js, session-drawer.js
  part(address: string): Promise<string>;
  fillBox(text: string, kind: string): void;
  isPlain(event: PageEvent): boolean;
  beginPanel(): void;
  drawn: Promise<void>;
  // The console
  ConsoleOutput: new (box: Part, words: Words, displays: Map<string, any[]>) => ConsoleOutput;
  consoleGap(item: Item, words: Words): string;
  consoleCells(
    box: Part,
    told: { onEdit: (cell: Cell) => void; onAnswer: (cell: Cell, text: string) => boolean; onWhole: (cell: Cell) => void },
  ): ConsoleCells;
  consoleCompletion(
    code: Part,
    matches: Part,
    words: Words,
    ask: (code: string, cursor: number) => Promise<Answer>,
    say: (text: string) => void,
  ): () => void;
  consoleOrders(
    address: string,
    post: (order: Run, then: (answer: Answer) => void) => void,
    told: {
      onReady: () => void;
      onRun: (run: Run) => void;
      onConnection: (isUp: boolean) => void;
      onRefused: (run: Run, reason: string) => void;
      onAway: (now: () => void) => void;
      onEnd: (code: number, reason: string, isSignedOut: boolean) => void;
    },
  ): {
    state: { draft: string; unsent: Run[] };
    save(change: { draft?: string; unsent?: Run[] }): void;
    send(type: string, more?: object, then?: (answer: Answer) => void): boolean;
    ask(type: string, more?: object): Promise<Answer>;
    again(): void;
    submit(run: Run): void;
    withdraw(runId: string): void;
    attach(after: Record<string, number>): void;
  };
  notebookOf(cells: { id: string; code: string; items: Item[] }[], language: string, words: Words): object;
};
interface String {
  replace(searched: string | RegExp, by: string | number): string; // a number becomes text
}
