import { useState } from "react";
import { IconButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icons";
import { useShortcut } from "@/lib/shortcuts";
import { setThemeChoice, type ThemeChoice, themeChoice } from "@/lib/theme";

const NEXT: Record<ThemeChoice, ThemeChoice> = { system: "light", light: "dark", dark: "system" };
const NAME: Record<ThemeChoice, string> = { system: "as the system", light: "light", dark: "dark" };

/** Light, dark, or as the system: one button that goes round. */
export function ThemeSwitch() {
  const [choice, setChoice] = useState(themeChoice);
  const turn = () => {
    setThemeChoice(NEXT[choice]);
    setChoice(NEXT[choice]);
  };
  useShortcut({ keys: "t", meaning: "Next theme", group: "View" }, turn);
  return (
    <IconButton label={`Theme: ${NAME[choice]}`} onClick={turn}>
      <Icon name={choice} />
    </IconButton>
  );
}
