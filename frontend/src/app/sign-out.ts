import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { api } from "@/api/client";
import { live } from "@/lib/live";
import { tellSessionChange } from "@/lib/session-change";

/** Ends the session on the server, in every tab, and forgets everything that was fetched with it. */
export function useSignOut(): () => Promise<void> {
  const client = useQueryClient();
  const navigate = useNavigate();
  return async () => {
    await api.DELETE("/api/v1/sessions/current");
    tellSessionChange();
    client.clear();
    await navigate({ to: "/login" });
    live.restart();
  };
}
