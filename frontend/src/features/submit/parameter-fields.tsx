import type { ProgramEntrypoint, ProgramParameter } from "@/api/schema";
import { exactText } from "@/lib/wire-numbers";
import { Field, INPUT_CLASS } from "./field";

interface ParameterFieldsProps {
  entrypoint: ProgramEntrypoint;
  /** Each field takes several values. */
  several: boolean;
  values: Readonly<Record<string, string>>;
  errorOf: (field: string) => string | undefined;
  /** undefined: back to the program's default. */
  onChange: (name: string, value: string | undefined) => void;
}

/** The keywords of the program's main, as its signature declares them. */
export function ParameterFields({ entrypoint, several, values, errorOf, onChange }: ParameterFieldsProps) {
  if (entrypoint.parameters.length === 0) {
    return <p className="pt-3 text-muted">This program takes no parameters.</p>;
  }
  return (
    <div className="grid grid-cols-2 gap-x-4 gap-y-3 pt-3">
      {entrypoint.parameters.map((parameter) => (
        <ParameterField
          error={errorOf(`parameters.${parameter.name}`)}
          key={parameter.name}
          onChange={(value) => onChange(parameter.name, value)}
          parameter={parameter}
          several={several}
          value={values[parameter.name]}
        />
      ))}
    </div>
  );
}

interface ParameterFieldProps {
  parameter: ProgramParameter;
  several: boolean;
  value: string | undefined;
  error: string | undefined;
  onChange: (value: string | undefined) => void;
}

function ParameterField({ parameter, several, value, error, onChange }: ParameterFieldProps) {
  const { name, type, required } = parameter;
  const initial = required ? "" : defaultText(parameter);
  const changed = value !== undefined && value !== initial;
  return (
    <div className={type === "json" || type === "list" ? "col-span-2" : undefined}>
      <Field
        error={error}
        hint={changed && !required && <Default onReset={() => onChange(undefined)} text={initial} />}
        kind={several ? `${type}, or several: a, b` : type}
        label={name}
        required={required}
      >
        {(control) =>
          type === "bool" && !several ? (
            <label className="flex h-8 items-center gap-2">
              <input
                {...control}
                checked={(value ?? initial) === "true"}
                className="size-4 accent-(--accent)"
                onChange={(event) => onChange(String(event.target.checked))}
                type="checkbox"
              />
              {value ?? initial}
            </label>
          ) : (
            <input
              {...control}
              className={`${INPUT_CLASS} font-mono text-xs`}
              inputMode={
                several ? "text" : type === "int" ? "numeric" : type === "float" ? "decimal" : "text"
              }
              onChange={(event) => onChange(event.target.value === initial ? undefined : event.target.value)}
              spellCheck={false}
              value={value ?? initial}
            />
          )
        }
      </Field>
    </div>
  );
}

function Default({ text, onReset }: { text: string; onReset: () => void }) {
  return (
    <>
      default <code>{text || '""'}</code>{" "}
      <button className="link min-h-6 px-1" onClick={onReset} type="button">
        Reset
      </button>
    </>
  );
}

function defaultText(parameter: ProgramParameter): string {
  const value = parameter.default;
  return typeof value === "string" && parameter.type === "str" ? value : exactText(value);
}
