import { QueryCache, QueryClient } from "@tanstack/react-query";
import { isApiError } from "@/api/errors";

const MAX_RETRIES = 2;

/** `onSignedOut` is called when an answer says that nobody is signed in. */
export function createQueryClient(onSignedOut: () => void): QueryClient {
  return new QueryClient({
    queryCache: new QueryCache({
      onError: (error) => {
        if (isApiError(error, "unauthenticated")) onSignedOut();
      },
    }),
    defaultOptions: {
      queries: {
        // The stream says when something changed; this only bounds how old an answer of a page that comes back may be.
        staleTime: 5_000,
        refetchOnWindowFocus: true,
        retry: (failures, error) => failures < MAX_RETRIES && isTransient(error),
        retryDelay: (failures) => 400 * 2 ** failures,
      },
    },
  });
}

function isTransient(error: unknown): boolean {
  return isApiError(error) && (error.status === 0 || error.status >= 500);
}
