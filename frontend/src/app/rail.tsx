import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { sessionQuery, versionQuery } from "@/api/queries";
import { BrandGlyph } from "@/components/ui/glyphs";
import { Icon } from "@/components/ui/icons";
import { useShortcut } from "@/lib/shortcuts";
import { PLACES } from "./navigation";
import { useSignOut } from "./sign-out";

/** The places, at the left; a bar of icons on narrow screens. */
export function Rail() {
  return (
    <nav
      aria-label="Main"
      className="sticky top-0 z-20 flex shrink-0 border-line bg-bg max-md:w-full max-md:border-b md:h-dvh md:w-12 md:flex-col md:border-r xl:w-[200px]"
    >
      <Link
        aria-label="Drumline, overview"
        className="flex h-11 shrink-0 items-center gap-2.5 px-3.5 font-strong text-md tracking-[-0.01em] xl:px-4"
        to="/"
      >
        <BrandGlyph />
        <span className="hidden xl:inline">Drumline</span>
      </Link>
      <div className="flex gap-0.5 max-md:items-center md:flex-col md:px-2 md:pt-2">
        {PLACES.map((place) => (
          <Place key={place.to} {...place} />
        ))}
      </div>
      <Who />
    </nav>
  );
}

function Place({ to, label, icon, keys }: (typeof PLACES)[number]) {
  const navigate = useNavigate();
  useShortcut({ keys, meaning: label, group: "Go to" }, () => void navigate({ to }));
  return (
    <Link
      activeOptions={{ exact: to === "/", includeSearch: false }}
      activeProps={{ "aria-current": "page" }}
      className="flex h-8 items-center gap-2.5 rounded-control px-2 text-muted hover:bg-hover hover:text-text aria-[current=page]:bg-accent-soft aria-[current=page]:text-text max-md:h-9 max-md:px-2.5"
      title={`${label} (${keys})`}
      to={to}
    >
      <Icon className="shrink-0" name={icon} />
      <span className="max-xl:sr-only">{label}</span>
    </Link>
  );
}

function Who() {
  const { data: session } = useQuery(sessionQuery);
  const { data: version } = useQuery(versionQuery);
  const signOut = useSignOut();
  if (!session) return null;
  return (
    <div className="mt-auto hidden p-4 text-xs xl:block">
      <div className="truncate">{session.project_name}</div>
      <div className="truncate text-muted">
        {session.principal}, {session.role}
      </div>
      <button
        className="mt-1 h-6 text-muted underline decoration-line-strong underline-offset-2 hover:text-text"
        onClick={() => void signOut()}
        type="button"
      >
        Sign out
      </button>
      {version && <div className="mt-2 text-2xs text-muted">Drumline {version.version}</div>}
    </div>
  );
}
