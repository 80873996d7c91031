import { type ComponentType, lazy, useState } from "react";

/**
 * A component whose code is loaded apart, and how to load it ahead.
 *
 * Where its code is there, it renders at once. React's own `lazy` shows the fallback even then, and holds it for 300 ms.
 */
export function comesLater<Props extends object>(load: () => Promise<{ default: ComponentType<Props> }>) {
  let loaded: ComponentType<Props> | undefined;
  const ahead = async () => {
    const code = await load();
    loaded = code.default;
    return code;
  };
  const Lazy = lazy(ahead);
  function Later(props: Props) {
    // Not another one while it is on the page, which would begin again.
    const [Known] = useState<ComponentType<Props>>(() => loaded ?? Lazy);
    return <Known {...props} />;
  }
  return [Later, ahead] as const;
}
