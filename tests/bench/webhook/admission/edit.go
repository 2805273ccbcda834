package admission

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Driver is both the DeviceClass and the driver of the cards.
const Driver = "hami-core-gpu.project-hami.io"

const (
	count  = "nvidia.com/gpu"
	memory = "nvidia.com/gpumem"
	cores  = "nvidia.com/gpucores"
	record = "hami-dra.io/migration"
)

// Share is what one container asks for, in the words of the vendor's driver.
type Share struct {
	Entry  string
	Cards  int64
	Memory resource.Quantity
	Cores  resource.Quantity
}

// TakeShares removes the legacy resources from a pod's containers and has them claim instead.
func TakeShares(pod *corev1.Pod) ([]Share, error) {
	var shares []Share
	taken := map[string]any{}
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		cards, found := container.Resources.Limits[count]
		if !found {
			continue
		}
		share := Share{Entry: "gpu-" + container.Name, Cards: cards.Value()}
		megabytes := container.Resources.Limits[memory]
		share.Memory = resource.MustParse(fmt.Sprintf("%dMi", megabytes.Value()))
		share.Cores = container.Resources.Limits[cores]
		taken[container.Name] = map[string]any{
			"entry": share.Entry, "limits": legacy(container.Resources.Limits),
			"requests": legacy(container.Resources.Requests),
		}
		for _, name := range []corev1.ResourceName{count, memory, cores} {
			delete(container.Resources.Limits, name)
			delete(container.Resources.Requests, name)
		}
		claim := corev1.ResourceClaim{Name: share.Entry}
		container.Resources.Claims = append(container.Resources.Claims, claim)
		shares = append(shares, share)
	}
	text, err := json.Marshal(map[string]any{"containers": taken})
	if err != nil {
		return nil, err
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[record] = string(text)
	return shares, nil
}

// AddEntry names the claim, or the template of it, that an entry stands for.
func AddEntry(pod *corev1.Pod, share Share, claim, template *string) {
	pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{
		Name: share.Entry, ResourceClaimName: claim, ResourceClaimTemplateName: template,
	})
}

func legacy(all corev1.ResourceList) map[string]string {
	found := map[string]string{}
	for _, name := range []corev1.ResourceName{count, memory, cores} {
		if amount, ok := all[name]; ok {
			found[string(name)] = amount.String()
		}
	}
	return found
}
