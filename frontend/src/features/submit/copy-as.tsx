import { useState } from "react";
import { CopyButton } from "@/components/ui/copy-button";
import { classNames } from "@/lib/class-names";
import type { KeptProgram } from "./draft";
import type { Submission } from "./request";
import { asCli, asCurl, asPython, type Swept } from "./snippets";

const LANGUAGES = ["Python", "CLI", "curl"] as const;
type Language = (typeof LANGUAGES)[number];

interface CopyAsProps {
  request: Submission;
  filename: string;
  /** The server has the program already; the SDK and the CLI need its files all the same. */
  kept: KeptProgram | null;
  swept: Swept | undefined;
}

/** The same run or sweep from code: what the page sends, as the SDK, the CLI and curl send it. */
export function CopyAs(props: CopyAsProps) {
  const [language, setLanguage] = useState<Language>("Python");
  const text = textIn(language, props);
  return (
    <div>
      <div className="section-rule items-center">
        <h2>The same from code</h2>
        <div className="ml-auto flex">
          {LANGUAGES.map((name) => (
            <button
              aria-pressed={name === language}
              className={classNames(
                "h-6 rounded-control px-2",
                name === language ? "bg-accent-soft" : "text-muted hover:bg-hover hover:text-text",
              )}
              key={name}
              onClick={() => setLanguage(name)}
              type="button"
            >
              {name}
            </button>
          ))}
        </div>
        <CopyButton bare label={`Copy as ${language}`} text={text} />
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard */}
      <pre className="max-h-64 overflow-auto py-3 text-xs leading-5" tabIndex={0}>
        {text}
      </pre>
    </div>
  );
}

function textIn(language: Language, { request, filename, kept, swept }: CopyAsProps): string {
  if (language === "curl") return asCurl(request, kept ? null : filename, location.origin, swept);
  const text = language === "Python" ? asPython(request, filename, swept) : asCli(request, filename, swept);
  return kept ? `# ${filename}: the directory with the files of version ${kept.version}\n${text}` : text;
}
