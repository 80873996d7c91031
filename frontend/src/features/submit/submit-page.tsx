import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";
import { isApiError } from "@/api/errors";
import { devicesQuery, hostsQuery, keys } from "@/api/queries";
import { ErrorState, SkeletonRows } from "@/components/ui/view-states";
import { useLiveList } from "@/lib/live";
import { useShortcut } from "@/lib/shortcuts";
import { exactText } from "@/lib/wire-numbers";
import type { Draft } from "./draft";
import { fitOf } from "./fit";
import { Form } from "./form";
import { PlanPane } from "./plan/plan-pane";
import { usePlan } from "./plan/use-plan";
import { ProgramHead } from "./program-head";
import { ProgramPane } from "./program-pane";
import { buildRequest } from "./request";
import { shapeOf } from "./shape";
import { SubmitBar } from "./submit-bar";
import { buildSweep, sizeOf } from "./sweep";
import { programPart, useClone, useDraft } from "./use-draft";
import { filenameOf, programOf, useProgram } from "./use-program";
import { useSubmit } from "./use-submit";

const route = getRouteApi("/submit");

/** What will happen if I press run? */
export function SubmitPage() {
  const search = route.useSearch();
  const { clone, error } = useClone(search);
  if (clone === undefined) {
    return (
      <div className="px-4 pt-5 lg:px-6">
        <h1 className="sr-only">Submit</h1>
        <SkeletonRows label="the program" rows={8} />
      </div>
    );
  }
  return <SubmitForm clone={clone} cloneError={error} key={JSON.stringify(search)} />;
}

interface SubmitFormProps {
  /** What it begins with; null is the draft kept in this browser. */
  clone: Draft | null;
  cloneError: unknown;
}

function SubmitForm({ clone, cloneError }: SubmitFormProps) {
  useLiveList("fleet", [keys.devices, keys.hosts]);
  const { draft, change } = useDraft(clone);
  const [zip, setZip] = useState<File | null>(null);
  const [asked, setAsked] = useState(false);
  const program = programOf(draft, zip);
  const upload = useProgram(program);
  const devices = useQuery(devicesQuery);
  const hosts = useQuery(hostsQuery);
  const submit = useSubmit(() => setAsked(false));
  const planning = usePlan();
  const [on, setOn] = useState("");
  const [sought, setSought] = useState("");

  const entrypoint =
    upload.bundle?.entrypoints.find(({ entrypoint: name }) => name === draft.entrypoint) ??
    upload.bundle?.entrypoints[0];
  const form = upload.bundle && entrypoint && { bundle: upload.bundle.sha256, entrypoint };
  const built = form && !draft.sweep ? buildRequest(draft, form.bundle, form.entrypoint) : null;
  const sweep = form && draft.sweep ? buildSweep(draft, form.bundle, form.entrypoint) : null;
  const errors = built?.errors ?? sweep?.errors;
  const refusal = submit.error ?? planning.error;
  const problem = isApiError(refusal) ? refusal : null;
  const errorOf = (field: string) =>
    (asked && errors?.[field]) || problem?.field(field) || problem?.field(`run.${field}`);
  const numbers = entrypoint?.parameters.filter(({ type }) => type === "int").map(({ name }) => name) ?? [];
  const largest = numbers.includes(sought) ? sought : "";
  const slice = on.trim() || null;
  const order = built?.request && {
    request: built.request,
    on: slice,
    largest: slice === null ? null : largest || null,
  };
  const isPlanned = order != null && exactText(order) === exactText(planning.of);
  const check = () => {
    setAsked(true);
    if (errors) requestAnimationFrame(focusFirstError);
  };
  const send = ({ anyway }: { anyway: boolean }) => {
    check();
    if (submit.isPending) return;
    if (sweep?.request) submit.mutate(sweep.request);
    if (built?.request)
      submit.mutate({ ...built.request, plan: isPlanned ? (planning.plan?.id ?? null) : null, anyway });
  };
  const plan = () => {
    submit.reset();
    check();
    if (order) planning.make(order);
  };
  const takeFile = async (file: File) => {
    submit.reset();
    if (/\.zip$/i.test(file.name)) {
      setZip(file);
      change({ ...programPart(file.name, draft.source), filename: draft.filename });
      return;
    }
    setZip(null);
    change(programPart(file.name, await file.text()));
  };
  useShortcut({ keys: "mod+enter", meaning: "Submit the run", group: "Run" }, () => send({ anyway: false }));

  const swept = sweep?.request
    ? { name: sweep.request.name, grid: sweep.request.sweep.parameters }
    : undefined;
  const shape = shapeOf(draft);
  const fit = devices.data && hosts.data && fitOf(devices.data, hosts.data, shape, draft.waitForDevices);
  return (
    <div className="flex min-h-0 flex-1 flex-col">
      <div className="grid flex-1 gap-x-10 gap-y-8 px-4 pt-5 pb-6 lg:px-6 xl:grid-cols-[minmax(0,7fr)_minmax(0,5fr)]">
        <h1 className="sr-only">Submit</h1>
        <div className="flex min-w-0 flex-col xl:sticky xl:top-16 xl:h-[calc(100dvh-144px)]">
          <ProgramHead onFile={takeFile} onProgram={change} program={program} upload={upload} />
          {cloneError !== null && <ErrorState error={cloneError} what="That program could not be loaded" />}
          <ProgramPane
            error={upload.error}
            files={upload.bundle?.files}
            onDrop={() => {
              setZip(null);
              change({ keptProgram: null });
            }}
            onFile={takeFile}
            onRetry={() => void upload.refetch()}
            onSource={(source) => change({ source })}
            onSubmit={() => send({ anyway: false })}
            program={program}
            sent={upload.checking ? upload.sent : null}
          />
        </div>
        <Form
          change={change}
          draft={draft}
          entrypoint={entrypoint}
          entrypoints={upload.bundle?.entrypoints ?? []}
          errorOf={errorOf}
          filename={filenameOf(program)}
          noEntrypoint={upload.bundle !== undefined && !entrypoint}
          fit={fit}
          fleetError={devices.error ?? hosts.error}
          request={built?.request ?? sweep?.request?.run ?? null}
          shape={shape}
          swept={swept}
        />
      </div>
      {planning.of && (
        <PlanPane
          error={planning.error}
          of={planning.of}
          onAgain={plan}
          onStop={planning.stop}
          ordering={planning.ordering}
          plan={planning.plan}
          stopError={planning.stopError}
          stopping={planning.stopping}
          stale={!isPlanned}
        />
      )}
      <SubmitBar
        blocked={upload.empty || !form || submit.isPending}
        busy={submit.isPending}
        checking={upload.checking && !upload.empty}
        error={submit.error}
        invalid={asked && errors != null}
        onSubmit={send}
        planning={
          draft.sweep
            ? null
            : { on, onOn: setOn, largest, onLargest: setSought, choices: numbers, onPlan: plan }
        }
        what={swept ? `${sizeOf(swept.grid)} runs` : draft.sweep ? "sweep" : "run"}
      />
    </div>
  );
}

function focusFirstError(): void {
  document.querySelector<HTMLElement>("main [aria-invalid=true]")?.focus();
}
