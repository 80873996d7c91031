import { type DragEvent, lazy, type ReactNode, Suspense, useRef, useState } from "react";
import { isApiError } from "@/api/errors";
import { Button } from "@/components/ui/button";
import { Icon } from "@/components/ui/icons";
import { ErrorState, Skeleton } from "@/components/ui/view-states";
import { classNames } from "@/lib/class-names";
import { count, formatBytes } from "@/lib/format";
import type { KeptProgram } from "./draft";
import { isSending, type Sent } from "./upload";
import type { Program } from "./use-program";

const loadEditor = () => import("./editor");
const Editor = lazy(loadEditor);

interface ProgramPaneProps {
  program: Program;
  error: unknown;
  /** How many the server found in it. */
  files: number | undefined;
  /** How much of a large zip is there, while it is brought to the server. */
  sent: Sent | null;
  onSource: (source: string) => void;
  onFile: (file: File) => void;
  onDrop: () => void;
  onRetry: () => void;
  onSubmit: () => void;
}

/** The program: typed here, or a file let fall on it. */
export function ProgramPane({
  program,
  error,
  files,
  sent,
  onSource,
  onFile,
  onDrop,
  onRetry,
  onSubmit,
}: ProgramPaneProps) {
  const [over, setOver] = useState(false);
  // The capture phase comes before CodeMirror, which would insert the file's text.
  const drag = {
    onDragOverCapture: (event: DragEvent) => {
      if (!event.dataTransfer.types.includes("Files")) return;
      event.preventDefault();
      event.stopPropagation();
      setOver(true);
    },
    onDragLeave: () => setOver(false),
    onDropCapture: (event: DragEvent) => {
      setOver(false);
      const file = event.dataTransfer.files[0];
      if (!file) return;
      event.preventDefault();
      event.stopPropagation();
      onFile(file);
    },
  };
  return (
    <div className="flex min-h-0 flex-1 flex-col">
      <div
        {...drag}
        className={classNames(
          "relative mt-3 min-h-80 flex-1 overflow-auto rounded-panel border bg-bg focus-within:border-line-strong max-xl:max-h-[55dvh]",
          over ? "border-accent" : "border-line",
        )}
      >
        {program.kind === "zip" && <ZipFacts file={program.file} onDrop={onDrop} sent={sent} />}
        {program.kind === "kept" && <KeptFacts files={files} kept={program.kept} onDrop={onDrop} />}
        {program.kind === "text" && (
          <Suspense fallback={<Skeleton className="m-4 w-40" />}>
            <Editor onChange={onSource} onSubmit={onSubmit} value={program.source} />
          </Suspense>
        )}
        {over && (
          <div className="pointer-events-none absolute inset-0 grid place-items-center bg-accent-soft text-md">
            Let go to use this file
          </div>
        )}
      </div>
      {error !== null && error !== undefined && (
        <div className="mt-4">
          <ErrorState
            error={error}
            {...(wasRefused(error) && program.kind !== "kept"
              ? { what: "The program was not accepted" }
              : { what: "The program could not be checked", onRetry })}
          />
        </div>
      )}
    </div>
  );
}

/** Whether the server looked at the program and said no; anything else may go well the next time. */
function wasRefused(error: unknown): boolean {
  return isApiError(error) && error.status >= 400 && error.status < 500;
}

function ZipFacts({ file, sent, onDrop }: { file: File; sent: Sent | null; onDrop: () => void }) {
  const note = isSending(sent) ? (
    <SentRule {...sent} />
  ) : (
    "The zip goes to the server as it is; its files are checked there."
  );
  return (
    <ProgramFacts note={note} onDrop={onDrop}>
      <code>{file.name}</code>, {formatBytes(file.size)}
    </ProgramFacts>
  );
}

function SentRule({ received, size }: Sent) {
  const told = `${formatBytes(received)} of ${formatBytes(size)} sent`;
  return (
    <span
      aria-label="Sent of the program"
      aria-valuemax={size}
      aria-valuemin={0}
      aria-valuenow={received}
      aria-valuetext={told}
      className="inline-flex items-center gap-2.5"
      role="progressbar"
      tabIndex={-1}
    >
      <svg aria-hidden="true" className="h-1.5 w-32" preserveAspectRatio="none" viewBox="0 0 100 6">
        <rect fill="var(--line)" height="6" width="100" />
        <rect fill="var(--active)" height="6" width={(received / size) * 100} />
      </svg>
      {told}
    </span>
  );
}

interface KeptFactsProps {
  kept: KeptProgram;
  files: number | undefined;
  onDrop: () => void;
}

function KeptFacts({ kept, files, onDrop }: KeptFactsProps) {
  return (
    <ProgramFacts
      note="The server has it already. To replace it, upload a file or drop one here."
      onDrop={onDrop}
    >
      Program of <code>{kept.job}</code> version {kept.version},{" "}
      {files !== undefined && `${count(files, "file")}, `}unchanged
    </ProgramFacts>
  );
}

/** A program that is no text to edit. */
function ProgramFacts({
  note,
  onDrop,
  children,
}: {
  note: ReactNode;
  onDrop: () => void;
  children: ReactNode;
}) {
  return (
    <div className="p-4">
      <p className="break-words">{children}</p>
      <p className="mt-1 text-muted">{note}</p>
      <Button className="mt-3" compact onClick={onDrop}>
        Write code instead
      </Button>
    </div>
  );
}

/** Chooses a file from disk. */
export function FileButton({ onFile }: { onFile: (file: File) => void }) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <Button compact onClick={() => input.current?.click()}>
        <Icon name="upload" size={14} />
        Upload
      </Button>
      <input
        accept=".py,.zip"
        aria-label="Program file"
        className="sr-only"
        onChange={(event) => {
          const file = event.target.files?.[0];
          if (file) onFile(file);
          event.target.value = "";
        }}
        ref={input}
        tabIndex={-1}
        type="file"
      />
    </>
  );
}
