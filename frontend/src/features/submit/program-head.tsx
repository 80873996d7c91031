import { Button } from "@/components/ui/button";
import { formatBytes } from "@/lib/format";
import type { Draft } from "./draft";
import { EXAMPLES } from "./examples";
import { FileButton } from "./program-pane";
import { isSending } from "./upload";
import { programPart } from "./use-draft";
import { filenameOf, type Program, type useProgram } from "./use-program";

interface ProgramHeadProps {
  program: Program;
  upload: ReturnType<typeof useProgram>;
  onFile: (file: File) => void;
  onProgram: (part: Partial<Draft>) => void;
}

/** Which program it is, what the server found in it, and where else one could come from. */
export function ProgramHead({ program, upload, onFile, onProgram }: ProgramHeadProps) {
  return (
    <div className="section-rule flex-wrap items-center">
      <h2>Program</h2>
      {program.kind !== "kept" && <code className="truncate">{filenameOf(program)}</code>}
      <span className="text-muted" role="status">
        <Found program={program} upload={upload} />
      </span>
      <div className="ml-auto flex flex-wrap items-center gap-1">
        <span className="text-muted">Examples</span>
        {EXAMPLES.map((example) => (
          <Button
            compact
            disabled={program.kind === "zip"}
            key={example.filename}
            look="quiet"
            onClick={() => onProgram(programPart(example.filename, example.source))}
            title={example.title}
          >
            {example.filename}
          </Button>
        ))}
        <FileButton onFile={onFile} />
      </div>
    </div>
  );
}

function Found({ upload }: Pick<ProgramHeadProps, "program" | "upload">) {
  if (upload.empty) return "empty";
  if (upload.checking) return isSending(upload.sent) ? "sending" : "checking";
  if (!upload.bundle) return "";
  const { entrypoints, size_bytes: size } = upload.bundle;
  return entrypoints.length === 0 ? "no main(run, ...) found" : `${formatBytes(size)} stored`;
}
