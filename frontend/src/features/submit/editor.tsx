import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import { bracketMatching, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { EditorState, Prec } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { useEffect, useEffectEvent, useRef } from "react";
import { editorHighlight, editorTheme } from "./editor-theme";

interface EditorProps {
  value: string;
  onChange: (value: string) => void;
  onSubmit: () => void;
}

/**
 * The program's source. It lives in a shadow root, where CodeMirror uses adoptedStyleSheets: its style tags are refused by the
 * page's policy `style-src 'self'`. Escape then Tab leaves the editor by keyboard.
 */
export default function Editor({ value, onChange, onSubmit }: EditorProps) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const changed = useEffectEvent(onChange);
  const send = useEffectEvent(() => {
    onSubmit();
    return true;
  });
  const initial = useEffectEvent(() => value);
  useEffect(() => {
    const holder = document.createElement("div");
    host.current?.append(holder);
    const root = holder.attachShadow({ mode: "open" });
    const editor = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: initial(),
        extensions: [
          extensions,
          Prec.high(keymap.of([{ key: "Mod-Enter", run: () => send() }])),
          EditorView.updateListener.of((update) => update.docChanged && changed(update.state.doc.toString())),
        ],
      }),
    });
    view.current = editor;
    return () => {
      editor.destroy();
      holder.remove();
      view.current = null;
    };
  }, []);
  useEffect(() => {
    const editor = view.current;
    if (!editor || editor.state.doc.toString() === value) return;
    editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: value } });
  }, [value]);
  return <div ref={host} />;
}

const extensions = [
  lineNumbers(),
  history(),
  drawSelection(),
  indentOnInput(),
  bracketMatching(),
  highlightActiveLine(),
  indentUnit.of("    "),
  EditorState.tabSize.of(4),
  python(),
  syntaxHighlighting(editorHighlight),
  editorTheme,
  EditorView.contentAttributes.of({
    "aria-label": "Program source. Escape, then Tab, leaves the editor.",
    spellcheck: "false",
    // Focusable as it is; said outright for tools that do not know contenteditable.
    tabindex: "0",
  }),
  keymap.of([...defaultKeymap, ...historyKeymap, indentWithTab]),
];
