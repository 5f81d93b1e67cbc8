// The launch form: a preset shows its numbers, touching a number means custom, a command only for batch.
document.addEventListener("alpine:init", () => {
  Alpine.data("launch", () => ({
    isBatch: false,

    init() {
      this.isBatch = this.$root.querySelector("[name=session_type]:checked")?.value === "batch";
      const preset = this.$root.querySelector("[name=preset]:checked");
      if (preset?.value) this.fill(preset);
    },
    chooseType(event) {
      this.isBatch = event.target.value === "batch";
    },
    choosePreset(event) {
      this.fill(event.target);
    },
    typed() {
      document.getElementById("preset-custom").checked = true;
    },
    fill({ dataset }) {
      for (const name of ["cpu", "mem"]) {
        if (dataset[name]) this.$root.querySelector(`[name=${name}]`).value = dataset[name];
      }
    },
  }));
});
