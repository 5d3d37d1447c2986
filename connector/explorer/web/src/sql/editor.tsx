// The editor of a statement. It lives in a shadow root, where its styles are constructed sheets that the policy allows.

import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { SQLDialect, sql } from "@codemirror/lang-sql";
import { HighlightStyle, bracketMatching, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, lintKeymap, setDiagnostics } from "@codemirror/lint";
import { Annotation, Compartment, EditorState, Prec } from "@codemirror/state";
import { EditorView, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "preact/hooks";
import { completionOf } from "./completion";
import type { Moment } from "./moment";
import type { Names } from "./names";

export interface Problem {
  message: string;
  line: number;
  column: number; // of Unicode signs, from 1
}

export interface EditorHandle {
  show: (problem: Problem) => void; // moves the cursor to its place
}

const LOOK = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--panel)", fontSize: "14px", maxHeight: "38vh", minHeight: "5.6rem" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "1px" },
  ".cm-scroller": { fontFamily: "ui-monospace, 'Cascadia Mono', 'DejaVu Sans Mono', monospace", lineHeight: "1.5", overflow: "auto" },
  ".cm-content": { caretColor: "var(--text)", padding: "0.4rem 0" },
  ".cm-gutters": { backgroundColor: "var(--panel)", color: "var(--quiet)", border: "0", paddingLeft: "0.3rem" },
  ".cm-tooltip": { backgroundColor: "var(--panel)", color: "var(--text)", border: "1px solid var(--line)", borderRadius: "6px", maxWidth: "92vw" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { maxWidth: "90vw", fontFamily: "inherit", maxHeight: "none" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "0.2rem 0.6rem" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--active)", color: "var(--text)", boxShadow: "inset 3px 0 0 var(--accent)" },
  ".cm-completionDetail": { color: "var(--quiet)", fontStyle: "normal", marginLeft: "1rem" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "700" },
  ".cm-completionInfo": { padding: "0.3rem 0.6rem", maxWidth: "24rem" },
  ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--bad) 1.5px", textUnderlineOffset: "3px" },
  ".cm-diagnostic-error": { borderLeft: "3px solid var(--bad)" },
  ".cm-matchingBracket": { backgroundColor: "var(--active) !important", outline: "1px solid var(--line)" },
});
const COLOURS = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--accent)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--mark)" },
  { tag: [tags.lineComment, tags.blockComment], color: "var(--quiet)", fontStyle: "italic" },
]);
const FROM_OUTSIDE = Annotation.define<boolean>();
const TIME_TRAVEL = "timestamp version system_time system_version";

// A browser that replaces a selection itself gives the new text the styles of the old one, which the policy refuses.
const REPLACED = EditorView.domEventHandlers({
  beforeinput: (event, view) => {
    const { from, to, empty } = view.state.selection.main;
    const text = event.data;
    if (event.inputType !== "insertText" || !text || empty || event.isComposing) return false;
    event.preventDefault();
    const insert = () => view.state.update(view.state.replaceSelection(text), { userEvent: "input.type", scrollIntoView: true });
    if (!view.state.facet(EditorView.inputHandler).some((handle) => handle(view, from, to, text, insert))) view.dispatch(insert());
    return true;
  },
});

function languageOf(names: Names, moment: () => Moment) {
  const dialect = SQLDialect.define({
    keywords: [...names.words, TIME_TRAVEL].join(" "), types: names.types.join(" "), doubleDollarQuotedStrings: true,
    identifierQuotes: '"', operatorChars: "*+-%<>!=&|~/:", slashComments: false, hashComments: false,
  });
  return [sql({ dialect }), autocompletion({ override: [completionOf(names, moment)], icons: false, maxRenderedOptions: 10 })];
}

function diagnosticOf(state: EditorState, problem: Problem): Diagnostic {
  const line = state.doc.line(Math.max(1, Math.min(problem.line, state.doc.lines)));
  const start = [...line.text].slice(0, problem.column - 1).join("").length;
  const from = Math.min(line.from + start, line.to);
  const word = /^(?:\w+|"[^"]*"|\S)/.exec(line.text.slice(from - line.from));
  return { from, to: Math.min(line.to, from + (word ? word[0].length : 0)), severity: "error", message: problem.message };
}

interface Props {
  given: { text: string }; // replaces what was typed whenever it is another object
  names: Names;
  moment: Moment;
  problem: Problem | null;
  onText: (text: string) => void;
  onRun: () => void;
  handle: { current: EditorHandle | null };
}

export function Editor(props: Props) {
  const host = useRef<HTMLDivElement>(null);
  const editor = useRef<EditorView | null>(null);
  const language = useRef(new Compartment());
  const latest = useRef(props);
  latest.current = props;
  useEffect(() => {
    const box = host.current as HTMLDivElement;
    const root = box.shadowRoot ?? box.attachShadow({ mode: "open" });
    const view = new EditorView({
      root, parent: root,
      state: EditorState.create({
        doc: props.given.text,
        extensions: [
          Prec.highest(keymap.of([{ key: "Mod-Enter", run: () => { latest.current.onRun(); return true; } }])),
          lineNumbers(), history(), bracketMatching(), closeBrackets(), REPLACED, EditorView.lineWrapping, LOOK, syntaxHighlighting(COLOURS),
          // Tab is of none of these, so it leaves the editor.
          keymap.of([...closeBracketsKeymap, ...completionKeymap, ...historyKeymap, ...lintKeymap, ...defaultKeymap]),
          language.current.of(languageOf(props.names, () => latest.current.moment)),
          EditorView.contentAttributes.of({ "aria-label": "SQL statement", spellcheck: "false" }),
          EditorView.updateListener.of((update) => {
            const isTyped = update.transactions.some((each) => each.docChanged && !each.annotation(FROM_OUTSIDE));
            if (isTyped) latest.current.onText(update.state.doc.toString());
          }),
        ],
      }),
    });
    editor.current = view;
    props.handle.current = {
      show: (problem) => {
        view.dispatch({ selection: { anchor: diagnosticOf(view.state, problem).from }, scrollIntoView: true });
        view.focus();
      },
    };
    return () => view.destroy();
  }, []);
  useEffect(() => {
    editor.current?.dispatch({ effects: language.current.reconfigure(languageOf(props.names, () => latest.current.moment)) });
  }, [props.names]);
  useEffect(() => {
    const view = editor.current;
    if (view && view.state.doc.toString() !== props.given.text) {
      view.dispatch({
        changes: { from: 0, to: view.state.doc.length, insert: props.given.text }, annotations: FROM_OUTSIDE.of(true),
      });
    }
  }, [props.given]);
  useEffect(() => {
    const view = editor.current;
    if (view) view.dispatch(setDiagnostics(view.state, props.problem ? [diagnosticOf(view.state, props.problem)] : []));
  }, [props.problem]);
  return <div ref={host} class="editor" />;
}
