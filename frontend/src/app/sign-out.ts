import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { api } from "@/api/client";

/** Ends the session on the server and forgets everything that was fetched with it. */
export function useSignOut(): () => Promise<void> {
  const client = useQueryClient();
  const navigate = useNavigate();
  return async () => {
    await api.DELETE("/api/v1/sessions/current");
    client.clear();
    await navigate({ to: "/login" });
  };
}
