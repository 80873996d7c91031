import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import type { VersionDiff as Diff, FileChange, Job } from "@/api/schema";
import { LineText } from "@/components/ui/line-text";
import { Section } from "@/components/ui/section";
import { Select } from "@/components/ui/select";
import { ErrorState, SkeletonRows } from "@/components/ui/view-states";
import { classNames } from "@/lib/class-names";
import { formatBytes } from "@/lib/format";
import { exactText } from "@/lib/wire-numbers";
import { diffQuery } from "./queries";

const MAX_CHOICES = 100;

/** What changed from another version to this one: fields, then files as unified diffs. */
export function VersionDiff({ job, number, against }: { job: Job; number: number; against: number }) {
  const navigate = useNavigate();
  const diff = useQuery({ ...diffQuery(job.name, against, number), enabled: against !== number });
  const others = Array.from(
    { length: Math.min(MAX_CHOICES, job.latest_version) },
    (_, i) => job.latest_version - i,
  );
  return (
    <Section
      aside={
        others.length > 1 && (
          <Select
            choices={others
              .filter((other) => other !== number || other === against)
              .map((other) => ({
                value: String(other),
                label: other === number ? "Compare" : `from v${other}`,
              }))}
            compact
            label="Compare with version"
            onChange={(other) =>
              void navigate({
                to: "/jobs/$name",
                params: { name: job.name },
                search: { v: number, against: Number(other) },
                replace: true,
              })
            }
            value={String(against)}
          />
        )
      }
      title={against === number ? "Changes" : `Changes from v${against}`}
    >
      {against === number ? (
        <p className="pt-3 text-muted">This is the first version.</p>
      ) : diff.data ? (
        <Changes diff={diff.data} />
      ) : diff.error ? (
        <ErrorState error={diff.error} what="The versions could not be compared" />
      ) : (
        <SkeletonRows label="the comparison" rows={4} />
      )}
    </Section>
  );
}

function Changes({ diff }: { diff: Diff }) {
  const hidden = diff.files_changed - diff.files.length;
  if (diff.fields.length + diff.files.length === 0)
    return <p className="pt-3 text-muted">Nothing differs.</p>;
  return (
    <div className="space-y-5 pt-3">
      {diff.fields.length > 0 && (
        <table aria-label="Changed fields" className="text-xs">
          <tbody>
            {diff.fields.map(({ path, old, new: value }) => (
              <tr key={path}>
                <th className="py-0.5 pr-6 text-left align-top font-normal text-muted" scope="row">
                  <code>{path}</code>
                </th>
                <td className="break-all py-0.5 pr-3 text-bad align-top">
                  <code>{brief(old)}</code>
                </td>
                <td className="break-all py-0.5 text-ok align-top">
                  <code>{brief(value)}</code>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {diff.files.map((file) => (
        <File file={file} key={file.path} />
      ))}
      {hidden > 0 && <p className="text-muted">and {hidden} more files</p>}
    </div>
  );
}

function File({ file }: { file: FileChange }) {
  return (
    <div>
      <div className="flex flex-wrap items-baseline gap-x-3">
        <code className="font-strong">
          <LineText text={file.path} />
        </code>
        <span className="text-muted text-xs">
          {file.change}, {noteOf(file)}
        </span>
      </div>
      {file.content === "text" && file.diff !== "" && <Lines diff={file.diff} />}
    </div>
  );
}

function Lines({ diff }: { diff: string }) {
  return (
    <div className="mt-1.5 rounded-panel border border-line">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard */}
      <pre className="max-h-[480px] overflow-auto py-2 text-xs leading-5" tabIndex={0}>
        {diff
          .split("\n")
          .slice(2)
          .map((line, at) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: the lines of one diff never change
            <div className={classNames("min-w-max px-3", toneOf(line))} key={at}>
              {line || " "}
            </div>
          ))}
      </pre>
    </div>
  );
}

function toneOf(line: string): string {
  if (line.startsWith("+")) return "bg-ok-soft text-ok";
  if (line.startsWith("-")) return "bg-bad-soft text-bad";
  return line.startsWith("@@") || line.startsWith("\\") ? "text-muted" : "";
}

function noteOf(file: FileChange): string {
  const sizes = [file.old_bytes, file.new_bytes]
    .filter((size) => size !== null)
    .map((size) => formatBytes(size));
  switch (file.content) {
    case "text":
      return `+${file.added_lines} −${file.removed_lines}`;
    case "binary":
      return `binary, ${sizes.join(" → ")}`;
    case "too_large":
      return `too large to compare by line, ${sizes.join(" → ")}`;
    default:
      return "left out: this comparison is long already";
  }
}

function brief(value: unknown): string {
  const text = value === null ? "none" : typeof value === "string" ? value : exactText(value);
  return text.startsWith("sha256:") ? text.slice(0, 19) : text;
}
