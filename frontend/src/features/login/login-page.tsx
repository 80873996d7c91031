import { useMutation, useQueryClient } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { type FormEvent, useEffect, useEffectEvent, useRef, useState } from "react";
import { api, body } from "@/api/client";
import { keys } from "@/api/queries";
import { Button } from "@/components/ui/button";
import { BrandGlyph } from "@/components/ui/glyphs";
import { ErrorState } from "@/components/ui/view-states";
import { live } from "@/lib/live";
import { tellSessionChange } from "@/lib/session-change";
import { codeInFragment, localPath } from "./fragment";

const route = getRouteApi("/login");

/** Signs in with the one-time code of the address, or with a token that is typed. */
export function LoginPage() {
  const { next } = route.useSearch();
  const navigate = route.useNavigate();
  const client = useQueryClient();
  const login = useMutation({
    mutationFn: (secret: { code: string } | { token: string }) =>
      body(api.POST("/api/v1/sessions", { body: secret })),
    onSuccess: async (session) => {
      client.clear();
      live.restart();
      tellSessionChange();
      client.setQueryData(keys.session, session);
      await navigate({ href: localPath(next), replace: true });
    },
  });
  const [code] = useState(() => codeInFragment(location.hash));
  const sent = useRef(false);
  const spendCode = useEffectEvent(() => {
    // The code works once: not even a history entry may keep it, and React's double mount must not send it twice.
    if (!code || sent.current) return;
    sent.current = true;
    history.replaceState(history.state, "", location.pathname + location.search);
    login.mutate({ code });
  });
  useEffect(() => {
    spendCode();
    // Another link in the address bar of this very page changes its fragment only.
    const follow = () => codeInFragment(location.hash) && location.reload();
    window.addEventListener("hashchange", follow);
    return () => window.removeEventListener("hashchange", follow);
  }, []);
  return (
    <main className="mx-auto flex min-h-dvh max-w-sm flex-col justify-center px-6 pb-24">
      <div className="flex items-center gap-2.5 font-strong text-lg">
        <BrandGlyph size={24} />
        Drumline
      </div>
      <h1 className="mt-6 text-md">Sign in</h1>
      {code && !login.error ? (
        <p className="mt-2 text-muted" role="status">
          Signing in with the link's one-time code.
        </p>
      ) : (
        <TokenForm busy={login.isPending} onToken={(token) => login.mutate({ token })} />
      )}
      {login.error && (
        <div className="mt-6">
          <ErrorState
            error={login.error}
            what={code ? "The link could not be used" : "The token was not accepted"}
          />
        </div>
      )}
    </main>
  );
}

function TokenForm({ busy, onToken }: { busy: boolean; onToken: (token: string) => void }) {
  const [token, setToken] = useState("");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (token.trim()) onToken(token.trim());
  };
  return (
    <form className="mt-4" onSubmit={submit}>
      <label className="mb-1 block" htmlFor="token">
        API token
      </label>
      <input
        autoComplete="off"
        className="h-8 w-full rounded-control border border-line-strong bg-bg px-2.5 font-mono text-xs"
        id="token"
        onChange={(event) => setToken(event.target.value)}
        placeholder="drm_pat_"
        spellCheck={false}
        type="password"
        value={token}
      />
      <Button className="mt-3 w-full" disabled={busy || token.trim() === ""} look="primary" type="submit">
        {busy ? "Signing in" : "Sign in"}
      </Button>
      <p className="mt-4 text-muted">
        <code>drumline up</code> prints a link that signs you in without a token.
      </p>
    </form>
  );
}
