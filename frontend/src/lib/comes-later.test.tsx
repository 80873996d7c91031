import { render } from "@testing-library/react";
import { Suspense } from "react";
import { describe, expect, it } from "vitest";
import { comesLater } from "./comes-later";

const code = async () => ({ default: ({ name }: { name: string }) => <p>{name}</p> });

describe("comesLater", () => {
  it("renders at once where its code was loaded ahead", async () => {
    const [Later, ahead] = comesLater(code);
    await ahead();

    const { container } = render(
      <Suspense fallback="on its way">
        <Later name="here" />
      </Suspense>,
    );

    expect(container.textContent).toBe("here");
  });

  it("loads its code where nobody did", async () => {
    const [Later] = comesLater(code);

    const { findByText } = render(
      <Suspense fallback="on its way">
        <Later name="here" />
      </Suspense>,
    );

    await findByText("here");
  });
});
